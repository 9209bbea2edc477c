"""One log: appends, rolls and syncs that the disk refuses or fails (R15)."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.log.segment import segment_indexes
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets, values


def _site(config: TopicConfig = CONFIG, **settings: Any) -> tuple[LogSite, Log]:
    site = LogSite(**settings).start()
    return site, site.create("t-0", config)


# -- rolls ------------------------------------------------------------------------------------


def test_full_segment_is_followed_by_one_at_the_log_end_offset() -> None:
    site, log = _site()
    site.fill(log, 11)
    assert base_offsets(log) == [0, 5, 10]
    assert len(log.segments) == 3
    assert "rolled segment of t-0 at offset 5" in site.reports
    site.settle()
    assert batch_offsets(log) == list(range(11))


def test_empty_segment_is_never_rolled() -> None:
    _, log = _site()
    with pytest.raises(AssertionError, match="needs no successor"):
        log.roll()
    assert base_offsets(log) == [0]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize(
    ("what", "interval_bytes"),
    [
        ("create .log", 400),
        # The old segment gets its index files only now.
        ("create .index", 4096),
        ("create .timeindex", 4096),
        ("append .timeindex", 400),
    ],
)
def test_failed_roll_on_a_full_disk_changes_nothing(
    what: str, interval_bytes: int, number: int
) -> None:
    site, log = _site(replace(CONFIG, index_interval_bytes=interval_bytes))
    site.fill(log, 5)
    site.settle()
    name, suffix = what.split()
    site.files.fail_when(
        lambda operation: operation.name == name and operation.path.endswith(suffix), number
    )
    with pytest.raises(KafkaStorageError, match="cannot roll in /a"):
        site.fill(log, 1)
    assert site.offline == []
    assert base_offsets(log) == site.listing(log) == [0]
    # A batch that still fits stays in the old segment; a start must not find a newer segment.
    site.append(log, value=b"small")
    site.files.fail_no_more()
    site.settle()
    site = site.kill()
    assert batch_offsets(site.log()) == list(range(6))
    site.fill(site.log(), 1)
    site.settle()
    assert base_offsets(site.log()) == [0, 6]


def test_full_disk_is_reported_once_a_minute() -> None:
    site, log = _site()
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)

    def refusals() -> list[str]:
        for _ in range(3):
            with pytest.raises(KafkaStorageError):
                site.append(log)
        return [line for line in site.reports if line.startswith("writes to /a are rejected: ")]

    assert len(refusals()) == 1
    site.ports.timers.advance(59_000)
    assert len(refusals()) == 1
    site.ports.timers.advance(1_000)
    assert len(refusals()) == 2
    assert "No space left" in refusals()[0]


def test_leftover_segment_of_a_failed_roll_is_harmless_after_a_crash() -> None:
    site, log = _site()
    site.fill(log, 5)
    site.settle()
    site.files.open_append(site.path(log, 5)).close()
    site.append(log, value=b"small")
    site.settle()
    site = site.kill()
    assert batch_offsets(site.log()) == list(range(6))


def test_failed_roll_takes_the_directory_offline() -> None:
    site, log = _site()
    site.fill(log, 5)
    site.files.fail_when(lambda operation: operation.name == "create", errno.EIO)
    with pytest.raises(KafkaStorageError):
        site.fill(log, 1)
    assert site.offline == ["/a"]
    assert log.offline


# -- failures (R15) ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_full_disk_refuses_an_append_completely(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_indexes, "_FLUSH_BYTES", 1)
    site, log = _site()
    site.fill(log, 2)
    site.settle()
    before = site.state(log)
    site.files.fail_when(
        lambda operation: operation.name == "append" and operation.path.endswith(suffix),
        errno.ENOSPC,
    )
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="cannot append in /a"):
            site.append(log, value=b"x" * 100, producer_id=7, producer_epoch=0, base_sequence=0)
        assert site.state(log) == before
    assert site.offline == []
    site.files.fail_no_more()
    assert site.append(log, value=b"there is room again").first_offset == 2
    site.settle()
    assert log.durable_end_offset == 3
    assert values(log)[2] == b"there is room again"


def test_append_that_cannot_be_undone_takes_the_directory_offline() -> None:
    site, log = _site()
    site.fill(log, 2)
    site.files.fail_when(lambda operation: operation.name in ("append", "truncate"), errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        site.fill(log, 1)
    assert site.offline == ["/a"]
    assert log.log_end_offset == 2


def test_failed_append_takes_the_directory_offline() -> None:
    site, log = _site()
    site.fill(log, 2)
    site.files.fail_when(lambda operation: operation.name == "append", errno.EIO)
    with pytest.raises(KafkaStorageError):
        site.fill(log, 1)
    assert site.offline == ["/a"]
    site.settle()
    assert log.durable_end_offset == 0


@pytest.mark.parametrize(("number", "offline"), [(errno.EIO, ["/a"]), (errno.EMFILE, [])])
def test_append_is_refused_when_it_cannot_read_the_segment(number: int, offline: list[str]) -> None:
    """The first one after a start reads the age of its segment."""
    site, log = _site()
    site.fill(log, 2)
    site.settle()
    site = site.kill()
    site.files.fail_when(lambda operation: operation.name == "pread", number)
    with pytest.raises(KafkaStorageError, match="cannot append in /a"):
        site.append(site.log())
    assert site.offline == offline
    assert site.log().log_end_offset == 2


def test_failed_sync_never_moves_the_durable_end() -> None:
    site, log = _site()
    site.fill(log, 2)
    site.settle()
    site.fill(log, 2)
    site.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    site.settle()
    site.files.fail_no_more()
    assert site.offline == ["/a"]
    assert (log.durable_end_offset, log.high_watermark) == (2, 2)
    assert batch_offsets(log) == [0, 1]


def test_sync_round_has_no_effect_after_a_failed_seal() -> None:
    """The kernel reports the error only once, so the job that receives it notifies the others."""
    site, log = _site()
    site.fill(log, 6)
    site.ports.timers.run_due()
    site.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    site.ports.jobs.run_one("dir:/a")
    site.files.fail_no_more()
    site.settle()
    assert log.durable_end_offset == 0
    assert log.high_watermark == 0
