"""The errors that a test can make its broker return."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode, NotLeaderOrFollower
from plogd.testing.controls import error_for_code


def test_error_for_code_returns_the_class_of_plog_errors() -> None:
    error = error_for_code(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")
    assert isinstance(error, NotLeaderOrFollower)
    assert error.message == "elsewhere"


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_error_for_code_supports_every_kafka_error(code: ErrorCode) -> None:
    assert error_for_code(code, "").code == code


@pytest.mark.parametrize("code", [ErrorCode.NONE, 4711])
def test_error_for_code_rejects_none_and_unknown_codes(code: int) -> None:
    with pytest.raises(ValueError, match=r"not an error|unknown error code"):
        error_for_code(code, "")
