"""Which errors take a log directory offline, and which do not."""

from __future__ import annotations

import errno

import pytest

from plogd.log.io_errors import is_refusal


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_lack_of_space_or_descriptors_is_a_refusal(number: int) -> None:
    assert is_refusal(OSError(number, "no room"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOENT, errno.ENODEV])
def test_other_errors_are_not_refusals(number: int) -> None:
    assert not is_refusal(OSError(number, "broken"))


def test_error_without_a_number_is_not_a_refusal() -> None:
    assert not is_refusal(OSError("a job died"))
