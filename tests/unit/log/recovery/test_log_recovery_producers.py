"""The producer state after a kill, when the producers' records have been deleted."""

from __future__ import annotations

import errno

import pytest

from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plogd.log.file_names import SNAPSHOT_SUFFIX
from plogd.log.housekeeping import RETRY_MS
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, create_topic

_ID = {"producer_id": 1000, "producer_epoch": 0}


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 1)
    assert broker.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0
    return broker


def delete_all(broker: SimBroker) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)


def roll(broker: SimBroker) -> None:
    """Begin a new segment; the job that seals the last one is not done yet."""
    with broker.ports.turn:
        broker.log("t").roll()


def files_of(broker: SimBroker) -> list[str]:
    return sorted(broker.files.listdir(f"{LOG_DIR}/t-0"))


def test_kill_before_the_snapshot_of_a_roll_keeps_all_producers(broker: SimBroker) -> None:
    delete_all(broker)
    roll(broker)
    again = SimBroker(files=broker.files.kill()).start()
    assert "00000000000000000000.log" not in files_of(again)
    for _ in range(2):  # The current state survives the next kill, too.
        assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0
        again = SimBroker(files=again.files.kill()).start()
    assert again.produce("t", b"c", base_sequence=2, **_ID).base_offset == 2


def test_kill_after_record_deletion_keeps_all_producers(
    broker: SimBroker,
) -> None:
    roll(broker)
    again = SimBroker(files=broker.files.kill()).start()
    delete_all(again)
    assert "00000000000000000000.log.deleted" in files_of(again)
    again = SimBroker(files=again.files.kill()).start()
    assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0


def test_start_within_the_first_segment_leaves_the_snapshot_before_it(broker: SimBroker) -> None:
    roll(broker)
    assert broker.produce("t", b"x", b"y").base_offset == 2
    delete_all(broker)
    broker.ports.advance(3_600_000)
    broker.ports.settle()
    assert files_of(broker)[0] == "00000000000000000002.log"
    again = SimBroker(files=broker.files.kill()).start()
    assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0


def test_older_snapshot_and_dropped_segments_restore_all_producers(broker: SimBroker) -> None:
    roll(broker)
    broker.ports.settle()
    assert f"{2:020}{SNAPSHOT_SUFFIX}" in files_of(broker)
    other = {"producer_id": 2000, "producer_epoch": 0}
    assert broker.produce("t", b"c", base_sequence=0, **other).base_offset == 2
    delete_all(broker)
    roll(broker)
    again = SimBroker(files=broker.files.kill()).start()
    assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0
    assert again.produce("t", b"c", base_sequence=0, **other).base_offset == 2
    assert again.produce("t", b"d", base_sequence=1, **other).base_offset == 3


def test_full_disk_postpones_the_snapshot_of_a_deleted_segment(
    broker: SimBroker,
) -> None:
    is_full = [True]
    broker.files.fail_when(
        lambda operation: (
            is_full[0] and operation.name == "append" and SNAPSHOT_SUFFIX in operation.path
        ),
        errno.ENOSPC,
    )
    roll(broker)
    broker.ports.settle()
    delete_all(broker)
    is_full[0] = False
    broker.ports.advance(RETRY_MS)
    broker.ports.settle()
    again = SimBroker(files=broker.files.kill()).start()
    assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0


def test_dropped_segments_are_kept_when_the_disk_is_too_full_for_a_snapshot(
    broker: SimBroker,
) -> None:
    delete_all(broker)
    roll(broker)
    files = broker.files.kill()
    files.fail_when(
        lambda operation: operation.name == "append" and SNAPSHOT_SUFFIX in operation.path,
        errno.ENOSPC,
    )
    again = SimBroker(files=files).start()
    assert "00000000000000000000.log" in files_of(again)
    assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0
    files = again.files.kill()
    files.fail_when(lambda operation: False, errno.ENOSPC)
    again = SimBroker(files=files).start()
    assert "00000000000000000000.log" not in files_of(again)
    assert again.produce("t", b"a", b"b", base_sequence=0, **_ID).base_offset == 0


def test_truncation_after_a_recovery_keeps_the_producers_of_deleted_segments() -> None:
    """Recovery writes the snapshots that the seals of the recovered segments would have written."""
    site = LogSite().start()
    log = site.create("t-0")
    site.append(log, value=b"a".ljust(100), base_sequence=0, **_ID)
    site.fill(log, 16)
    assert base_offsets(log) == [0, 5, 10, 15]
    site = site.kill()  # Before the seals.
    log = site.log()
    assert site.listing(log, SNAPSHOT_SUFFIX) == [5, 10, 15]
    log.delete_records_before(5)
    site.ports.advance(CONFIG.file_delete_delay_ms)
    site.settle(log.truncate_to(12))
    assert list(log.producer_state.producers) == [1000]
    log = site.kill().log()
    assert (log.log_start_offset, log.log_end_offset) == (5, 12)
    assert list(log.producer_state.producers) == [1000]


def test_recovery_writes_one_snapshot_when_there_are_no_producers() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.fill(log, 17)
    site = site.kill()
    assert site.listing(site.log(), SNAPSHOT_SUFFIX) == [15]
