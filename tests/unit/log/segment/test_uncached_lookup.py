"""Cold reads: files that are deleted before a job reads them."""

from __future__ import annotations

import errno

import pytest

from plogd.log.segment.uncached_lookup import uncached_range
from tests.helpers.sim.sim_files import SimFiles


@pytest.mark.parametrize("is_unlinked", [False, True])
def test_read_of_a_file_that_is_deleted_meanwhile_does_nothing(is_unlinked: bool) -> None:
    files = SimFiles(["/a"])
    files.open_append("/a/1.index").close()
    file = files.open_on_demand("/a/1.index")
    cold = uncached_range(file, 0, 8)
    if is_unlinked:
        files.unlink("/a/1.index")
    file.close()
    cold.warm()


def test_read_fails_with_the_errors_of_the_disk() -> None:
    files = SimFiles(["/a"])
    files.open_append("/a/1.index").close()
    cold = uncached_range(files.open_on_demand("/a/1.index"), 0, 8)
    files.fail_when(lambda operation: True, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        cold.warm()
