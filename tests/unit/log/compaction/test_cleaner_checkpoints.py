"""The entries of cleaner-offset-checkpoint when logs are deleted."""

from __future__ import annotations

import errno

from plogd.log import file_names
from plogd.log.log import Log
from tests.helpers.log.compaction_site import COMPACT, checkpointed_offset, compact, put
from tests.helpers.log.log_site import LogSite

PATH = f"/a/{file_names.CLEANER_OFFSET_CHECKPOINT}"


def _fail_writes(site: LogSite, error_number: int) -> None:
    site.files.fail_when(lambda one: one.path.startswith(PATH), error_number)


def _create(site: LogSite, name: str) -> Log:
    log = site.create(name, COMPACT)
    for number in range(20):
        put(site, log, b"k%d" % (number % 3), b"value")
    site.settle()
    return log


def _names(site: LogSite) -> list[str]:
    """Return the names of the topics in the file."""
    lines = site.files.read_file(PATH).decode().splitlines()
    return sorted(line.split()[0] for line in lines[2:])


def _site() -> LogSite:
    site = LogSite().start()
    for name in ("a-0", "b-0", "c-0"):
        _create(site, name)
    while compact(site):
        pass
    assert _names(site) == ["a", "b", "c"]
    return site


def test_deletion_removes_the_entry_of_a_log() -> None:
    site = _site()
    site.delete("b-0")
    assert _names(site) == ["a", "c"]
    site = site.kill()
    assert _names(site) == ["a", "c"]


def test_deletion_of_a_log_that_was_never_compacted_writes_nothing() -> None:
    site = _site()
    site.create("d-0", COMPACT)
    before = site.files.read_file(PATH)
    _fail_writes(site, errno.EIO)
    site.delete("d-0")
    site.files.fail_no_more()
    assert site.files.read_file(PATH) == before
    assert site.offline == []


def test_entry_that_a_full_disk_keeps_does_not_affect_a_new_log() -> None:
    site = _site()
    _fail_writes(site, errno.ENOSPC)
    site.delete("b-0")
    site.files.fail_no_more()
    assert _names(site) == ["a", "b", "c"]
    log = _create(site, "b-0")
    assert checkpointed_offset(site, log) is None
    assert _names(site) == ["a", "c"]
    assert compact(site)
