"""The logs of each log directory, and the free space of its file system."""

from __future__ import annotations

import errno

from plog.errors import KafkaStorageError
from plogd.log.disk.log_dir_usage import LogDirUsage, usage_of
from plogd.ports import spawn
from tests.helpers.log.log_site import LogSite


def usage(site: LogSite) -> list[LogDirUsage]:
    found = site.settle(spawn(usage_of(site.manager, site.ports.jobs)))
    assert isinstance(found, list)
    return found


def make() -> LogSite:
    site = LogSite(("/a", "/b")).start()
    for name in ("t-0", "t-1", "u-0"):
        site.create(name)
    return site


def test_usage_lists_logs_and_free_space_of_each_directory() -> None:
    site = make()
    site.files.capacity_bytes = site.files.used_bytes + 1000
    first, second = usage(site)
    assert (first.path, second.path) == ("/a", "/b")
    assert [str(log.topic_partition) for log in first.logs] == ["t-0", "u-0"]
    assert [str(log.topic_partition) for log in second.logs] == ["t-1"]
    assert first.space == second.space == (site.files.capacity_bytes, 1000)


def test_directory_that_failed_has_only_its_error() -> None:
    site = make()
    site.manager.storage_failed("/b", OSError(errno.EIO, "broken"))
    first, second = usage(site)
    assert first.error is None
    assert isinstance(second.error, KafkaStorageError)
    assert (second.space, second.logs) == (None, ())


def test_failed_space_query_is_only_reported_as_an_error() -> None:
    site = make()
    site.files.fail_when(lambda operation: operation.name == "space", errno.EIO)
    assert [one.error is None for one in usage(site)] == [False, False]
    assert site.offline == []


def test_log_deleted_meanwhile_is_not_listed() -> None:
    site = make()
    asked = spawn(usage_of(site.manager, site.ports.jobs))
    site.delete("t-1")
    first, second = site.settle(asked)
    assert (len(first.logs), len(second.logs)) == (2, 0)


def test_usage_does_not_wait_for_other_jobs_of_the_directory() -> None:
    site = make()
    spawn(usage_of(site.manager, site.ports.jobs))
    assert site.ports.jobs.waiting == ["space:/a", "space:/b"]
    site.settle()
