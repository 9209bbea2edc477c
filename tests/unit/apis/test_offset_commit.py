"""OffsetCommit on a complete broker: every version, mixed outcomes, failing disks."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from tests.helpers.offsets import commit, commit_codes, commit_request, fetch, fetch_error, topic_id
from tests.helpers.sim.sim_broker import SimBroker, create_topic, produce_request

EVERY_VERSION = range(2, 11)


def make(**settings: object) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 3)
    create_topic(broker, "u")
    return broker


@pytest.fixture
def broker() -> SimBroker:
    return make()


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_offset_is_committed_in_every_version(broker: SimBroker, version: int) -> None:
    epoch = 4 if version >= 6 else -1
    offsets = {("t", 1): 42, ("u", 0): 7}
    codes = commit(broker, "g", offsets, version=version, metadata="here", leader_epoch=epoch)
    assert codes == {("t", 1): 0, ("u", 0): 0}
    assert fetch(broker, "g") == offsets
    assert fetch(broker.restart(), "g") == offsets


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_missing_partitions_are_errors_and_the_rest_is_committed(
    broker: SimBroker, version: int
) -> None:
    request = commit_request(
        broker, "g", {("t", 0): 1, ("t", 3): 2, ("t", -1): 3, ("t", 2): 4}, version=version
    )
    stranger = OffsetCommitRequestTopic(
        name="nobody", topic_id=b"?" * 16, partitions=request.topics[0].partitions[:1]
    )
    request.topics.insert(0, stranger)
    answer = broker.ask(request, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in answer.topics[0].partitions] == [unknown]
    assert answer.topics[0].topic_id == (b"?" * 16 if version >= 10 else bytes(16))
    assert commit_codes(broker, answer) | {("nobody", -1): 0, ("", -1): 0} == {
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): 0,
        ("t", 2): 0,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nobody", -1): 0,
        ("", -1): 0,
    }
    assert fetch(broker, "g") == {("t", 0): 1, ("t", 2): 4}


def test_request_with_only_missing_partitions_creates_no_group(broker: SimBroker) -> None:
    assert commit(broker, "g", {("nobody", 0): 1}) == {
        ("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert broker.ask(OffsetCommitRequest(group_id="g"), 8).topics == []
    assert broker.log(OFFSETS_TOPIC) is None


def test_empty_group_id_may_commit(broker: SimBroker) -> None:
    assert commit(broker, "", {("t", 0): 1}) == {("t", 0): 0}
    assert fetch(broker.restart(), "") == {("t", 0): 1}


def test_group_ids_of_every_script_hash_to_the_partition_of_kafka(broker: SimBroker) -> None:
    homes = {"g": 3, "grün": 49, "日本": 47, "🦆 duck": 11, "polygenelubricants": 0}
    for number, group in enumerate(homes):
        commit(broker, group, {("t", 0): number})
    for group, partition in homes.items():
        end = broker.log(OFFSETS_TOPIC, partition).log_end_offset
        assert end == 1, group
    again = broker.restart()
    assert [fetch(again, group)["t", 0] for group in homes] == list(range(5))


def test_longest_group_id_of_a_request_can_commit(broker: SimBroker) -> None:
    group = "é" * 16_383
    assert commit(broker, group, {("t", 0): 1}) == {("t", 0): 0}
    assert fetch(broker.restart(), group) == {("t", 0): 1}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_member_of_a_missing_group_is_refused(broker: SimBroker, version: int, code: int) -> None:
    fields = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    codes = commit(broker, "g", {("t", 0): 1, ("t", 9): 1}, version=version, **fields)
    assert codes == {("t", 0): code, ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetch(broker, "g") == {}


def test_too_large_metadata_is_refused_alone(broker: SimBroker) -> None:
    request = commit_request(broker, "g", {("t", 0): 1, ("t", 1): 2})
    request.topics[0].partitions[0].committed_metadata = "x" * 4097
    request.topics[0].partitions[1].committed_metadata = "x" * 4096
    codes = commit_codes(broker, broker.ask(request, 8))
    assert codes == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE, ("t", 1): 0}
    assert fetch(broker, "g") == {("t", 1): 2}


def test_request_with_only_too_large_metadata_writes_nothing(broker: SimBroker) -> None:
    commit(broker, "h", {("t", 0): 1})
    codes = commit(broker, "g", {("t", 0): 1}, metadata="x" * 5000)
    assert codes == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert broker.log(OFFSETS_TOPIC, 3).log_end_offset == 0


def know_of(broker: SimBroker, name: str, partition_count: int) -> None:
    """Add a topic with many partitions to the metadata without creating their logs."""
    some = broker.broker.cache.topic("t")
    assert some is not None
    partitions = tuple(
        dataclasses.replace(some.partitions[0], partition=number)
        for number in range(partition_count)
    )
    broker.broker.cache.update(
        dataclasses.replace(some, name=name, topic_id=name.encode() * 4, partitions=partitions)
    )


def test_ten_thousand_partitions_of_one_request_are_committed_in_batches(broker: SimBroker) -> None:
    know_of(broker, "many", 5000)
    know_of(broker, "more", 5000)
    offsets = {(topic, number): number for topic in ("many", "more") for number in range(5000)}
    assert set(commit(broker, "g", offsets).values()) == {0}
    batch = broker.fetch(OFFSETS_TOPIC, partition=3).records
    assert int.from_bytes(batch[57:61], "big") == 256
    assert fetch(broker, "g") == offsets
    assert fetch(broker.restart(), "g", version=7) == offsets


def test_commit_larger_than_a_batch_is_refused(broker: SimBroker) -> None:
    know_of(broker, "many", 256)
    offsets = {("many", number): number for number in range(256)}
    codes = commit(broker, "g", offsets, metadata="x" * 4096)
    assert set(codes.values()) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert fetch(broker, "g") == {}
    assert broker.bugs == []


def test_last_offset_of_a_repeated_partition_is_committed(broker: SimBroker) -> None:
    request = commit_request(broker, "g", {("t", 0): 1})
    [topic] = request.topics
    topic.partitions += commit_request(broker, "g", {("t", 0): 2}).topics[0].partitions
    request.topics += commit_request(broker, "g", {("t", 1): 3, ("t", 0): 4}).topics
    [answered] = broker.ask(request, 8).topics
    codes = [(one.partition_index, one.error_code) for one in answered.partitions]
    assert codes == [(0, 0), (1, 0)]
    assert fetch(broker, "g") == {("t", 0): 4, ("t", 1): 3}


def test_old_versions_set_the_retention_time(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1}, version=3, retention_time_ms=60_000)
    commit(broker, "g", {("t", 1): 1}, version=3)
    again = broker.restart()
    again.ports.clock.jump_wall(60_000)
    again.broker.group_coordinator.clean_up()
    again.settle()
    assert fetch(again, "g") == {("t", 1): 1}


# -- failures ----------------------------------------------------------------------------------


def test_full_disk_refuses_commits_and_keeps_earlier_ones(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    assert commit(broker, "g", {("t", 0): 2}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    assert fetch(broker, "g") == {("t", 0): 1}
    broker.files.fail_no_more()
    assert commit(broker, "g", {("t", 0): 3}) == {("t", 0): 0}
    assert fetch(broker.restart(), "g") == {("t", 0): 3}


def test_groups_are_unavailable_after_a_disk_failure(
    broker: SimBroker,
) -> None:
    commit(broker, "g", {("t", 0): 1})
    asked = broker.begin(commit_request(broker, "g", {("t", 0): 2}), 8)
    broker.files.fail_when(lambda op: op.name == "sync", errno.EIO)
    broker.settle()
    assert commit_codes(broker, asked.response()) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    assert fetch_error(broker, "g") == ErrorCode.NOT_COORDINATOR
    assert commit(broker, "g", {("t", 0): 3}) == {("t", 0): ErrorCode.NOT_COORDINATOR}


def test_response_waits_until_the_commit_is_durable(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    asked = broker.begin(commit_request(broker, "g", {("t", 0): 2}), 8)
    broker.ports.timers.run_due()
    assert not asked.is_done
    lost = broker.restart(broker.files.crash(broker.ports.random))
    assert fetch(lost, "g")["t", 0] in (1, 2)


@pytest.mark.parametrize("seed", range(12))
def test_answered_commit_survives_power_loss_at_any_operation(seed: int) -> None:
    broker = make()
    commit(broker, "g", {("t", 0): 0})
    broker.ports.random.random_bytes(seed + 1)
    answered = 0
    for number in range(1, 40):
        asked = broker.begin(commit_request(broker, "g", {("t", 0): number}), 8)
        for _ in range(broker.ports.random.randrange(6)):
            if broker.ports.jobs.waiting:
                broker.ports.jobs.run_one()
            broker.ports.timers.run_due()
        if asked.is_done:
            assert commit_codes(broker, asked.response()) == {("t", 0): 0}
            answered = number
        if number % 13 == 0:
            broker = broker.restart(broker.files.crash(broker.ports.random))
            found = fetch(broker, "g")["t", 0]
            assert answered <= found <= number, "an answered commit was lost, or went back"
            answered = found


def test_disconnect_does_not_cancel_the_commit(broker: SimBroker) -> None:
    commit(broker, "h", {("t", 0): 1})
    asked = broker.begin(commit_request(broker, "g", {("t", 0): 2}), 8)
    asked.cancel()
    broker.settle()
    assert fetch(broker, "g") == {("t", 0): 2}


# -- the offsets topic -------------------------------------------------------------------------


def test_only_kafkas_tools_may_write_to_the_offsets_topic(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    refused = broker.ask(produce_request(OFFSETS_TOPIC, b"x"), 9)
    code = refused.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = produce_request(OFFSETS_TOPIC, b"x")
    answer = broker.ask(request, 9, client_id="__admin_client")
    # The tools' client id is allowed, but a compacted topic refuses a record without a key.
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_deleting_a_topic_removes_its_committed_offsets(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1, ("u", 0): 2})
    commit(broker, "other", {("t", 2): 3})
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    broker.settle()
    create_topic(broker, "t", 3)
    assert fetch(broker, "g") == {("u", 0): 2}
    assert fetch(broker, "other") == {}
    again = broker.restart()
    assert (fetch(again, "g"), fetch(again, "other")) == ({("u", 0): 2}, {})


def test_offsets_of_a_topic_deleted_while_loading_are_removed(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1, ("u", 0): 2})
    again = SimBroker(files=broker.files.kill())
    started = again.broker.start()
    while not started.done:
        again.ports.jobs.run_one()
        again.ports.timers.run_due()
    state = again.broker.cache.topic("t")
    assert state is not None
    again.broker.group_coordinator.topic_stopped(state)
    again.settle()
    assert fetch(again, "g") == {("u", 0): 2}


def test_deleting_the_offsets_topic_removes_all_groups(
    broker: SimBroker,
) -> None:
    commit(broker, "g", {("t", 0): 1})
    first_id = topic_id(broker, OFFSETS_TOPIC)
    broker.ask(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC], timeout_ms=1000), 5)
    assert fetch(broker, "g") == {}
    assert topic_id(broker, OFFSETS_TOPIC) != first_id
    assert commit(broker, "g", {("t", 0): 2}) == {("t", 0): 0}


def test_existing_offsets_topic_is_used_unchanged(broker: SimBroker) -> None:
    create_topic(broker, OFFSETS_TOPIC, 4, cleanup_policy="compact")
    commit(broker, "g", {("t", 0): 1})  # 103 % 4
    assert broker.log(OFFSETS_TOPIC, 3).log_end_offset == 1
    assert fetch(broker.restart(), "g") == {("t", 0): 1}
