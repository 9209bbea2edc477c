"""What every error tells."""

from __future__ import annotations

import pytest

from plog.error_base import MESSAGE_MAX_CHARACTERS
from plog.errors import InvalidRequest


def test_an_error_without_a_text_says_what_it_means() -> None:
    assert InvalidRequest().message == InvalidRequest.__doc__


@pytest.mark.parametrize("character", ["x", "é", "漢", "𝄞"])
def test_a_text_of_any_length_fits_into_a_string_of_the_protocol(character: str) -> None:
    text = "there is no topic " + character * 40_000
    message = InvalidRequest(text).message
    assert len(message) == MESSAGE_MAX_CHARACTERS
    assert len(message.encode()) <= 32_767
    assert message.removesuffix("...") == text[: MESSAGE_MAX_CHARACTERS - 3]


def test_a_text_that_fits_is_told_as_it_is() -> None:
    text = "x" * MESSAGE_MAX_CHARACTERS
    assert InvalidRequest(text).message == text
