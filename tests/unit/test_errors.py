"""The texts of errors."""

from __future__ import annotations

import pytest

from plog.error_base import MESSAGE_MAX_CHARACTERS
from plog.errors import InvalidRequest


def test_error_without_a_text_has_a_default_text() -> None:
    assert InvalidRequest().message == InvalidRequest.__doc__


@pytest.mark.parametrize("character", ["x", "é", "漢", "𝄞"])
def test_long_text_is_truncated_to_a_string_of_the_protocol(character: str) -> None:
    text = "there is no topic " + character * 40_000
    message = InvalidRequest(text).message
    assert len(message) == MESSAGE_MAX_CHARACTERS
    assert len(message.encode()) <= 32_767
    assert message.removesuffix("...") == text[: MESSAGE_MAX_CHARACTERS - 3]


def test_short_text_is_unchanged() -> None:
    text = "x" * MESSAGE_MAX_CHARACTERS
    assert InvalidRequest(text).message == text
