"""plog/errors.py: the messages of errors."""

from __future__ import annotations

import pytest

from plog.error_base import MESSAGE_MAX_CHARACTERS
from plog.errors import InvalidRequest


def test_message_defaults_to_description_of_class() -> None:
    assert InvalidRequest().message == InvalidRequest.__doc__


@pytest.mark.parametrize("character", ["x", "é", "漢", "𝄞"])
def test_long_message_is_truncated_to_fit_protocol_string(character: str) -> None:
    text = "there is no topic " + character * 40_000
    message = InvalidRequest(text).message
    assert len(message) == MESSAGE_MAX_CHARACTERS
    assert len(message.encode()) <= 32_767
    assert message.removesuffix("...") == text[: MESSAGE_MAX_CHARACTERS - 3]


def test_short_message_is_unchanged() -> None:
    text = "x" * MESSAGE_MAX_CHARACTERS
    assert InvalidRequest(text).message == text
