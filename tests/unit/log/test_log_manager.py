"""All logs of a broker: where they are created, how they are loaded, effects of a failed disk."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from plog.errors import KafkaStorageError
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.log_dir import LogDirUnusable
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import (
    CONFIG,
    LogSite,
    batch_offsets,
    four_segments,
    partition_of,
)
from tests.helpers.sim.sim_ports import outcome

METADATA = TopicPartition("__cluster_metadata", 0)
METADATA_ID = bytes(15) + b"\1"


def _directories(site: LogSite, path: str) -> list[str]:
    return [name for name in site.files.listdir(path) if site.files.is_dir(f"{path}/{name}")]


def _break(site: LogSite, path: str, name: str = "") -> None:
    """From now on, fail every operation below `path`, or those called `name`."""
    site.files.fail_when(
        lambda operation: operation.path.startswith(path) and operation.name.startswith(name),
        errno.EIO,
    )


# -- creating logs ----------------------------------------------------------------------------


def test_logs_are_created_in_the_directory_with_the_fewest() -> None:
    site = LogSite(("/a", "/b", "/c")).start()
    site.create("x-0")
    logs = site.settle(site.manager.create([site.new(f"t-{number}") for number in range(7)]))
    assert sorted(log.log_dir for log in logs) == ["/a", "/a", "/b", "/b", "/b", "/c", "/c"]
    assert _directories(site, "/b") == ["t-0", "t-3", "t-6"]


def test_directories_fill_evenly_after_deletions() -> None:
    site = LogSite(("/a", "/b")).start()
    for number in range(4):
        site.create(f"t-{number}")
    site.delete("t-0")
    site.delete("t-2")
    assert [site.create(f"u-{number}").log_dir for number in range(3)] == ["/a", "/a", "/a"]


def test_log_is_known_only_when_it_is_durable() -> None:
    site = LogSite().start()
    creation = site.manager.create([site.new("t-0")])
    assert not creation.done
    assert site.manager.get(partition_of("t-0")) is None
    site.settle()
    [log] = outcome(creation)
    assert site.manager.get(partition_of("t-0")) is log
    for seed in range(10):
        assert "t-0" in site.files.crash(random.Random(seed)).listdir("/a")


def test_remains_of_a_crashed_creation_are_renamed_by_the_next() -> None:
    site = LogSite().start()
    site.files.mkdir("/a/t-0")
    site.files.open_append("/a/t-0/00000000000000000000.log").append(b"half")
    log = site.create("t-0")
    assert log.log_end_offset == 0
    assert len([name for name in _directories(site, "/a") if name.endswith("-stray")]) == 1


def test_recreated_log_does_not_inherit_checkpoints() -> None:
    """Otherwise the old log's checkpoints would make recovery delete records of the new one."""
    for seed in range(5):
        site, log = four_segments()
        log.log_start_offset = 12
        site.write_checkpoints()
        site.settle(site.manager.write_log_starts())
        site.delete("t-0")
        log = site.create("t-0")
        site.fill(log, 8)
        site.settle()
        site = site.crash(seed)
        assert batch_offsets(site.log()) == list(range(8))


def test_full_disk_refuses_a_new_log_completely() -> None:
    site = LogSite().start()
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match=r"cannot create a log in /a: .*No space left"):
        site.create("t-0")
    assert site.offline == []
    assert _directories(site, "/a") == []
    site.files.fail_no_more()
    assert site.create("t-0").log_dir == "/a"


def test_disk_that_fails_at_a_creation_goes_offline() -> None:
    site = LogSite(("/a", "/b")).start()
    _break(site, "/a", "sync_dir")
    with pytest.raises(KafkaStorageError, match="cannot create a log in /a"):
        site.create("t-0")
    assert site.offline == ["/a"]
    assert site.create("u-0").log_dir == "/b"


def test_logs_created_in_other_directories_stay_when_one_fails() -> None:
    """The controller removes the topic again, and those logs with it."""
    site = LogSite(("/a", "/b")).start()
    _break(site, "/a/")
    with pytest.raises(KafkaStorageError):
        site.settle(site.manager.create([site.new("t-0"), site.new("t-1")]))
    assert list(site.manager.logs) == [partition_of("t-1")]


def test_creation_fails_without_an_online_directory() -> None:
    site = LogSite().start()
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaStorageError, match="every log directory is offline"):
        site.create("t-0")


def test_log_is_offline_when_its_directory_fails_during_creation() -> None:
    site = LogSite().start()
    creation = site.manager.create([site.new("t-0")])
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    [log] = site.settle(creation)
    assert log.offline
    with pytest.raises(KafkaStorageError, match="/a is offline"):
        site.append(log)


# -- loading ----------------------------------------------------------------------------------


def test_every_log_is_found_again() -> None:
    site = LogSite(("/a", "/b")).start()
    for number in range(5):
        site.fill(site.create(f"t-{number}"), number)
    site.settle()
    for next_life in (LogSite.kill, LogSite.restart):
        site = next_life(site)
        assert [site.log(f"t-{number}").log_end_offset for number in range(5)] == [0, 1, 2, 3, 4]
    assert [site.log(f"t-{number}").log_dir for number in range(5)] == ["/a", "/b"] * 2 + ["/a"]


def test_logs_are_loaded_on_the_configured_number_of_lanes() -> None:
    site = LogSite(num_recovery_threads_per_data_dir=3).start()
    for number in range(5):
        site.create(f"t-{number}")
    site = site.next_life()
    site.settle(site.manager.open_directories())
    loading = site.manager.load_logs(site._topic_of)
    site.ports.jobs.run_one("dir:/a")  # Find the logs,
    site.ports.jobs.run_one("dir:/a")  # and measure what recovery will scan.
    assert sorted(site.ports.jobs.waiting) == ["dir:/a:0", "dir:/a:1", "dir:/a:2"]
    site.settle(loading)
    assert len(site.manager.logs) == 5


def test_directory_of_an_unknown_topic_is_renamed_and_reported() -> None:
    site, _ = four_segments()
    site.topics.clear()
    site.create("t-1")
    site = site.kill()
    assert list(site.manager.logs) == [partition_of("t-1")]
    assert "t-0" not in _directories(site, "/a")
    [stray] = [name for name in _directories(site, "/a") if name.endswith("-stray")]
    assert site.listing(site.log("t-1"))
    assert site.files.listdir(f"/a/{stray}")
    assert "t-0 in /a is not a known partition" in site.reports[0]
    assert stray in site.reports[0]


def test_every_start_reports_existing_stray_directories() -> None:
    site, _ = four_segments()
    for number in range(5):
        site.files.mkdir(f"/a/gone-{number}.0123456789abcdef0123456789abcdef-stray")
    for _ in range(2):
        site = site.kill()
        [report] = site.reports
        assert report.startswith(
            "/a contains 5 partitions of unknown topics, which were moved to gone-0."
        )
        assert report.count("-stray") == 3
        assert "remove them if you do not need their records" in report


def test_directory_of_an_earlier_topic_of_the_same_name_is_renamed() -> None:
    """F26: a new topic never contains old data."""
    site, _ = four_segments()
    key = partition_of("t-0")
    site.topics[key] = (b"\7" * 16, CONFIG)
    site = site.kill()
    assert site.manager.get(key) is None
    assert "-stray" in site.reports[0]


def test_longest_stray_name_fits_into_a_directory() -> None:
    site = LogSite().start()
    site.fill(site.create("t" * 249 + "-0"), 1)
    site.topics.clear()
    site = site.kill()
    assert site.offline == []
    assert [len(name) for name in _directories(site, "/a")] == [255]


def test_other_directories_are_ignored() -> None:
    site, _ = four_segments()
    site.files.mkdir("/a/lost+found")
    site.files.mkdir("/a/t-0.0123456789abcdef0123456789abcdef-stray")
    site.files.open_append("/a/t-7").close()
    site = site.kill()
    assert batch_offsets(site.log()) == list(range(17))
    stray = "t-0.0123456789abcdef0123456789abcdef-stray"
    assert {"lost+found", "t-7", stray} <= set(site.files.listdir("/a"))
    assert [report for report in site.reports if stray not in report] == []


def test_partition_in_two_directories_refuses_the_start() -> None:
    """Only the operator knows which one is right; a wrong guess would lose the other."""
    site = LogSite(("/a", "/b")).start()
    log = site.create("t-0")
    site.files.mkdir("/b/t-0")
    copied = site.files.open_append(f"/b/t-0/{file_names.PARTITION_METADATA}")
    copied.append(site.files.read_file(f"{log.directory}/{file_names.PARTITION_METADATA}"))
    with pytest.raises(LogDirUnusable, match="cannot load t-0: both /a and /b contain it; move"):
        site.kill()


def test_stray_directory_is_not_a_second_copy_of_the_partition() -> None:
    site = LogSite(("/a", "/b")).start()
    site.create("t-0")
    site.files.mkdir("/b/t-0")
    site.files.open_append("/b/t-0/00000000000000000000.log").append(b"something")
    site = site.kill()
    assert site.log().log_dir == "/a"
    assert _directories(site, "/b")[0].endswith("-stray")


def test_unused_stray_directory_is_removed() -> None:
    """A kill leaves these partitions, created by CreatePartitions but not in the metadata yet."""
    site = LogSite().start()
    site.create("t-0")
    site.create("t-1")
    del site.topics[partition_of("t-1")]
    site = site.kill()
    assert _directories(site, "/a") == ["t-0"]
    assert "t-1 in /a is not a known partition" in site.reports[0]
    assert "removed, because it never contained records" in site.reports[0]


def test_stray_whose_records_were_all_deleted_stays() -> None:
    """Its files show how far its offsets had risen."""
    site = LogSite().start()
    site.files.mkdir("/a/t-0")
    site.files.open_append("/a/t-0/00000000000000000017.log").close()
    site = site.kill()
    assert _directories(site, "/a")[0].endswith("-stray")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("listdir", "/a"),
        ("listdir", "/a/t-0"),
        ("pread", "/a/t-0/"),
        ("unlink", "/a/gone-0."),
        ("rename", "/a/stray-0"),
    ],
)
def test_directory_that_cannot_be_read_goes_offline_and_the_others_serve(
    name: str, path: str
) -> None:
    site = LogSite(("/a", "/b")).start()
    for number in range(2):
        site.fill(site.create(f"t-{number}"), 3)
    site.settle()
    site.files.mkdir("/a/gone-0.0123456789abcdef0123456789abcdef-delete")
    site.files.open_append("/a/gone-0.0123456789abcdef0123456789abcdef-delete/file").close()
    site.files.mkdir("/a/stray-0")
    site.files.open_append("/a/stray-0/00000000000000000000.log").append(b"something")
    site = site.next_life()
    site.settle(site.manager.open_directories())
    _break(site, path, name)
    site.settle(site.manager.load_logs(site._topic_of))
    assert site.offline == ["/a"]
    assert site.log("t-1").log_end_offset == 3
    log = site.manager.get(partition_of("t-0"))
    assert log is None or log.offline


# -- the metadata log -------------------------------------------------------------------------


def _load_metadata(site: LogSite) -> str:
    site.settle(site.manager.open_directories())
    config = TopicConfig(cleanup_policy=())
    log: Log = site.settle(site.manager.load_metadata_log(METADATA, METADATA_ID, config))
    assert log.topic_id == METADATA_ID
    site.settle(site.manager.load_logs(site._topic_of))
    assert site.manager.get(METADATA) is log
    return log.log_dir


def test_metadata_log_is_created_in_the_first_directory_and_found_in_any() -> None:
    site = LogSite(("/a", "/b"))
    assert _load_metadata(site) == "/a"
    site = LogSite(("/b", "/a"), files=site.files.kill())
    assert _load_metadata(site) == "/a"
    assert site.reports == []


def test_metadata_log_is_not_created_while_a_directory_is_offline() -> None:
    site = LogSite(("/a", "/b"))
    _load_metadata(site)
    site = LogSite(("/a", "/b"), files=site.files.kill())
    _break(site, "/a")
    expected = r"__cluster_metadata-0: it may be in an offline log directory \(/a\); repair"
    with pytest.raises(LogDirUnusable, match=expected):
        _load_metadata(site)


def test_metadata_log_is_not_created_where_partitions_exist() -> None:
    """One of log.dirs is missing or not mounted; the partitions must not all become stray."""
    site = LogSite(("/a", "/b"))
    _load_metadata(site)
    site.create("t-0")
    site.create("u-0")
    site = LogSite(("/b",), files=site.files.kill())
    with pytest.raises(LogDirUnusable, match=r"__cluster_metadata-0 in log\.dirs: /b contains"):
        _load_metadata(site)
    assert _directories(site, "/b") == ["t-0"]
    site = LogSite(("/a", "/b"), files=site.files.kill())
    assert _load_metadata(site) == "/a"


def test_start_is_refused_when_the_metadata_log_cannot_be_read() -> None:
    site = LogSite(("/a", "/b"))
    _load_metadata(site)
    site = LogSite(("/a", "/b"), files=site.files.kill())
    _break(site, "/a/__cluster_metadata-0/")
    with pytest.raises(LogDirUnusable, match=r"cannot read __cluster_metadata-0: .*Input/output"):
        _load_metadata(site)


def test_start_is_refused_with_two_metadata_logs() -> None:
    site = LogSite(("/a", "/b"))
    _load_metadata(site)
    site.files.mkdir("/b/__cluster_metadata-0")
    site = LogSite(("/a", "/b"), files=site.files.kill())
    with pytest.raises(LogDirUnusable, match="__cluster_metadata-0: both /a and /b contain it"):
        _load_metadata(site)


# -- housekeeping -----------------------------------------------------------------------------


def test_retention_visits_every_log_after_an_error_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = LogSite().start()
    logs = [site.create(f"t-{number}", replace(CONFIG, retention_bytes=0)) for number in range(3)]
    for log in logs:
        site.fill(log, 6)
    site.settle()

    def refuse(now_ms: int) -> int:
        raise KafkaStorageError("no room")

    monkeypatch.setattr(logs[1], "apply_retention", refuse)
    site.manager.apply_retention(site.ports.clock.now_ms())
    assert [log.log_start_offset for log in logs] == [5, 0, 5]
    assert "retention of t-1 failed: no room; it will be retried" in site.reports


def test_inactive_producers_expire() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    clock, expiration_ms = site.ports.clock, site.config.producer_id_expiration_ms
    site.append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    site.manager.expire_producers(clock.monotonic_ms())
    site.ports.advance(1000)
    site.append(log, producer_id=8, producer_epoch=0, base_sequence=0)
    site.ports.advance(expiration_ms - 1000)
    site.manager.expire_producers(clock.monotonic_ms())
    assert list(log.producer_state.producers) == [8]


def test_producer_of_old_records_expires_like_any_other() -> None:
    """A backfill: its records are older than ``producer.id.expiration.ms``."""
    site = LogSite().start()
    log = site.create("t-0")
    old_ms = site.ports.clock.now_ms() - 2 * site.config.producer_id_expiration_ms

    def send(log: Log, sequence: int) -> AppendInfo:
        return site.append(
            log, timestamp=old_ms, producer_id=7, producer_epoch=0, base_sequence=sequence
        )

    for sequence in range(3):
        send(log, sequence)
    site.settle()
    site.manager.expire_producers(site.ports.clock.monotonic_ms())
    assert (send(log, 2).duplicate, send(log, 2).first_offset) == (True, 2)
    for is_clean in (False, True):
        site = site.restart() if is_clean else site.kill()
        site.manager.expire_producers(site.ports.clock.monotonic_ms())
        assert (send(site.log(), 2).duplicate, site.log().log_end_offset) == (True, 3)


def test_setting_the_wall_clock_does_not_expire_producers() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    for jump_days in (400, -800):
        site.manager.expire_producers(site.ports.clock.monotonic_ms())
        site.ports.clock.jump_wall(jump_days * 86_400_000)
    site.manager.expire_producers(site.ports.clock.monotonic_ms())
    assert list(log.producer_state.producers) == [7]


def test_producer_expiration_may_change_at_runtime() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    site.manager.update_config(replace(site.config, producer_id_expiration_ms=1000))
    later = site.create("t-1")
    assert later.producer_state.expiration_ms == 1000
    site.manager.expire_producers(0)
    site.manager.expire_producers(1000)
    assert not log.producer_state.producers


def test_log_is_found_by_its_partition() -> None:
    site, log = four_segments()
    assert site.manager.get(partition_of("t-0")) is log
    assert site.manager.get(partition_of("t-1")) is None
    assert len(site.manager.cluster_id) == 22


# -- failure (R15) ----------------------------------------------------------------------------


def test_failed_directory_takes_its_logs_offline_once() -> None:
    site = LogSite(("/a", "/b")).start()
    a, b = site.create("t-0"), site.create("t-1")
    for _ in range(2):
        site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    assert (a.offline, b.offline) == (True, False)
    assert site.offline == site.manager.offline_dirs == ["/a"]
    assert not site.last_is_offline
    assert site.reports[-1].startswith("log directory /a is offline: [Errno 5] broken; repair")
    site.manager.storage_failed("/b", OSError(errno.EIO, "broken"))
    assert site.last_is_offline


def test_failed_sync_takes_only_its_directory_offline() -> None:
    site = LogSite(("/a", "/b")).start()
    logs = [site.create("t-0"), site.create("t-1")]
    for log in logs:
        site.fill(log, 1)
    _break(site, "/a", "sync")
    site.settle()
    assert [log.durable_end_offset for log in logs] == [0, 1]
    assert site.offline == ["/a"]
    assert site.create("t-2").log_dir == "/b"


def test_failed_syncfs_takes_only_directories_of_its_file_system_offline() -> None:
    site = LogSite(("/a", "/b", "/c"), device_by_path={"/c": 2}).start()
    logs = [log for number in range(90) for log in [site.create(f"t-{number}")]]
    for log in logs:
        site.append(log)
    site.files.fail_when(
        lambda operation: operation.name == "sync_fs" and operation.path != "/c", errno.EIO
    )
    site.settle()
    assert site.offline == ["/a", "/b"]
    assert {log.log_dir for log in logs if log.durable_end_offset} == {"/c"}


def test_acknowledged_records_are_readable_in_an_offline_directory() -> None:
    site, log = four_segments()
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    assert batch_offsets(log) == list(range(17))
