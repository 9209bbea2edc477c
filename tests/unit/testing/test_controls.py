"""The commands of a test to its broker: what they take, what they tell when that is wrong."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode, NotLeaderOrFollower
from plogd.testing.controls import error_to_tell


def test_an_error_of_ours_is_told_with_its_class_and_text() -> None:
    error = error_to_tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")
    assert isinstance(error, NotLeaderOrFollower)
    assert error.message == "elsewhere"


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_every_error_of_kafkas_can_be_told(code: ErrorCode) -> None:
    assert error_to_tell(code, "").code == code


@pytest.mark.parametrize("code", [ErrorCode.NONE, 4711])
def test_what_is_no_error_of_kafkas_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="no error"):
        error_to_tell(code, "")
