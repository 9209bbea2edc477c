"""F8: a broker starts on a full disk, serves reads, and accepts writes when space is available.

The file system has no space reserved for the metadata log (disk/reserved_space.py), either because
it does not support that or because the reserve is used up.
"""

from __future__ import annotations

import errno

import pytest

from plog.errors import ErrorCode
from plog.records.batch import iter_batches
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.metadata import MetadataRequest
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_files import SimCrash, SimFiles

FULL = ErrorCode.KAFKA_STORAGE_ERROR


def used(how: str, batches: int = 4) -> tuple[SimBroker, SimFiles]:
    """Return a stopped broker with records, and its files."""
    broker = SimBroker()
    broker.files.reserve_supported = False
    broker.start()
    create_topic(broker, "t", segment_bytes="1048576")
    for number in range(batches):
        assert broker.produce("t", b"%d" % number * 200_000).error_code == 0
    if how == "stop":
        broker.stop()
    files = broker.files.crash(broker.ports.random) if how == "crash" else broker.files.kill()
    return broker, files


def delete_records(broker: SimBroker, offset: int) -> int:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t",
                partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)],
            )
        ],
        timeout_ms=1000,
    )
    [partition] = broker.ask(request, 2).topics[0].partitions
    return int(partition.error_code)


def epochs(broker: SimBroker, offset: int) -> list[int]:
    records = bytes(broker.fetch("t", offset).records)
    return [header.partition_leader_epoch for _, header in iter_batches(records)]


@pytest.mark.parametrize("room", [0, 40, 60])
@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_full_disk_allows_reads_and_refuses_writes_until_space_is_available(
    how: str, room: int
) -> None:
    """The registration does not fit; a leader never writes in an epoch it already had (R6)."""
    broker, files = used(how)
    files.capacity_bytes = files.used_bytes + room
    again = broker.restart(files)
    assert any("no space left in /data" in line for line in again.reports)
    assert again.fetch("t").high_watermark == 4
    [topic] = again.ask(MetadataRequest(topics=None), 9).topics
    assert topic.partitions[0].leader_epoch == 1
    assert again.produce("t", b"x").error_code == FULL
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    assert again.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == FULL
    [deleted] = again.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5).responses
    assert deleted.error_code == FULL
    again.ports.advance(5_000)
    assert again.produce("t", b"x").error_code == FULL
    files.capacity_bytes = None
    again.ports.advance(1_000)
    assert any("registered this broker: space is available again" in line for line in again.reports)
    assert again.produce("t", b"y").base_offset == 4
    assert epochs(again, 4) == [1]
    create_topic(again, "u")
    assert again.bugs == []
    after = again.restart()
    assert after.produce("t", b"z").base_offset == 5
    assert epochs(after, 4) == [1, 2]


def test_deleting_records_frees_the_space_that_it_needs() -> None:
    """The disk space comes from the deletion itself, without a restart."""
    broker, files = used("kill", batches=8)
    files.capacity_bytes = files.used_bytes
    again = broker.restart(files)
    assert delete_records(again, 6) == FULL  # The new log start must be durable before a response.
    again.ports.advance(70_000)
    assert files.used_bytes < files.capacity_bytes
    assert again.produce("t", b"y").base_offset == 8
    assert delete_records(again, 6) == 0
    assert again.fetch("t", 7).high_watermark == 9
    assert again.bugs == []


@pytest.mark.parametrize("starts", [2, 5])
def test_broker_can_start_repeatedly_on_full_disk(starts: int) -> None:
    broker, files = used("kill")
    for _ in range(starts):
        files.capacity_bytes = files.used_bytes
        broker = broker.restart(files)
        assert broker.fetch("t").high_watermark == 4
        files = broker.files.kill()
    files.capacity_bytes = None
    broker = broker.restart(files)
    assert broker.produce("t", b"y").base_offset == 4
    assert epochs(broker, 3) == [0, 1]


def test_crash_after_space_returns_never_reuses_leader_epoch() -> None:
    """Once space is available, the power fails at every operation in turn."""
    for number in range(1, 40):
        broker, files = used("kill")
        files.capacity_bytes = files.used_bytes
        again = broker.restart(files)
        files.capacity_bytes = None
        files.crash_at(files.operations + number)
        acknowledged = False
        try:
            again.ports.advance(1_000)
            acknowledged = again.produce("t", b"y").error_code == 0
        except SimCrash:
            pass
        files = files.crash(again.ports.random)
        after = again.restart(files)
        written = epochs(after, 0)
        assert written[:4] == [0, 0, 0, 0]
        assert len(written) == 5 or not acknowledged
        assert after.produce("t", b"z").error_code == 0
        assert epochs(after, 0)[-1] > max(written)
        if acknowledged:
            break
    else:
        pytest.fail("the record was never acknowledged")


def test_missing_logs_are_created_when_space_is_available() -> None:
    """The broker stopped after it had written the topic and before it had created the logs."""
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    create_topic(broker, "u", 2)
    files = broker.files.kill()
    for number in range(2):
        for name in files.listdir(f"/data/u-{number}"):
            files.unlink(f"/data/u-{number}/{name}")
        files.rmdir(f"/data/u-{number}")
    files.fail_when(lambda operation: operation.name == "mkdir", errno.ENOSPC)
    again = broker.restart(files)
    assert any("cannot create the logs of 2 partitions (u-0, u-1)" in x for x in again.reports)
    assert again.produce("t", b"x", partition=1).error_code == 0
    assert again.produce("u", b"x").error_code == FULL
    again.ports.advance(3_000)
    assert again.produce("u", b"x", partition=1).error_code == FULL
    files.fail_no_more()
    again.ports.advance(1_000)
    assert again.produce("u", b"x", partition=1).error_code == 0
    assert again.produce("u", b"x").error_code == 0
    assert again.bugs == []


def test_topic_that_is_deleted_while_its_logs_are_created_does_not_return() -> None:
    """Found by the simulator: seed 9005 with 400 steps."""
    broker = SimBroker().start()
    create_topic(broker, "u", 2)
    files = broker.files.kill()
    for number in range(2):
        for name in files.listdir(f"/data/u-{number}"):
            files.unlink(f"/data/u-{number}/{name}")
        files.rmdir(f"/data/u-{number}")
    files.fail_when(lambda operation: operation.name == "mkdir", errno.ENOSPC)
    again = broker.restart(files)
    files.fail_no_more()
    # The next attempt has begun, but its job waits for the slow directory.
    again.ports.timers.advance(1_000)
    jobs = again.ports.jobs
    assert jobs.waiting == ["dir:/data"]
    deletion = again.begin(DeleteTopicsRequest(topic_names=["u"], timeout_ms=60_000), 5)
    for _ in range(5):
        while again.ports.timers.run_due():
            pass
        if "sync:1" in jobs.waiting:
            jobs.run_one("sync:1")
    again.settle()
    assert [one.error_code for one in deletion.response().responses] == [0]
    assert again.ask(MetadataRequest(topics=None), 9).topics == []
    create_topic(again, "u", 2)
    assert again.produce("u", b"x").error_code == 0
    assert again.bugs == []


def test_failing_disk_is_not_treated_as_full() -> None:
    broker, files = used("kill")
    files.fail_when(lambda op: op.name == "append" and "__cluster_metadata" in op.path, errno.EIO)
    with pytest.raises(Exception, match=r"Input/output error|offline"):
        broker.restart(files)


def test_broker_near_descriptor_limit_starts_without_a_missing_log() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    create_topic(broker, "u", 2)
    files = broker.files.kill()
    for name in files.listdir("/data/u-0"):
        files.unlink(f"/data/u-0/{name}")
    files.rmdir("/data/u-0")
    files.descriptors.set_limit(8, 1 << 31)
    assert files.descriptors.max_logs < 4
    again = broker.restart(files)
    assert any("cannot create the logs of 1 partitions (u-0)" in x for x in again.reports)
    assert again.produce("t", b"x").error_code == 0
    assert again.produce("u", b"x", partition=1).error_code == 0
    assert again.produce("u", b"x").error_code == FULL
    files.descriptors.set_limit(1000, 1 << 31)
    again.ports.advance(3_000)
    assert again.produce("u", b"x").error_code == 0
    assert again.bugs == []
