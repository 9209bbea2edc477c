"""plogd/tools/metadata/kraft_log_reader.py: the state that Kafka's metadata records describe."""

from __future__ import annotations

import pytest

from plog.records.control import ControlType
from plog.wire.internal.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_metadata_record,
)
from plogd.tools.metadata.kraft_log_reader import (
    UnreadableMetadata,
    log_values,
    read_state,
    snapshot_values,
)
from plogd.tools.storage.cluster_state import ClusterState
from tests.helpers.programs.kafka_data import (
    KafkaData,
    control_batch,
    topic_id,
    unknown_record,
    values_batch,
)
from tests.helpers.sim.sim_files import SimFiles

CLICKS = topic_id(1)
BEGIN, END, ABORT = map(unknown_record, (23, 24, 25))


@pytest.fixture
def data() -> KafkaData:
    """Return a writer of metadata records."""
    return KafkaData(SimFiles(["/kafka"]), "/kafka")


def _state(values: list[bytes]) -> ClusterState:
    return read_state(enumerate(values))


def _encoded(*records: MetadataRecord, version: int = 0) -> list[bytes]:
    return [encode_metadata_record(record, version) for record in records]


def test_state_contains_topics_settings_and_producer_ids(data: KafkaData) -> None:
    data.topic("clicks", CLICKS, partitions=2, leader_epoch=4, retention_ms="5")
    data.config(4, "", "log.retention.ms", "7")
    data.config(4, "7", "log.cleaner.threads", "2")
    data.producer_ids(3000)
    state = _state(data.metadata)
    assert state.topics["clicks"].topic_id == CLICKS
    assert sorted(state.topics["clicks"].partitions) == [0, 1]
    assert state.topics["clicks"].partitions[1].leader_epoch == 4
    assert [(name, one.topic_id) for name, one in state.topics.items()] == [("clicks", CLICKS)]
    assert state.topic_configs == {"clicks": {"retention.ms": "5"}}
    assert state.broker_configs == {
        "": {"log.retention.ms": "7"},
        "7": {"log.cleaner.threads": "2"},
    }
    assert state.next_producer_id == 3000
    assert not state.may_hold_old_formats
    assert not state.not_imported


def test_deleted_setting_is_not_in_state(data: KafkaData) -> None:
    data.topic("clicks", CLICKS, retention_ms="5", segment_ms="6")
    data.config(2, "clicks", "retention.ms", None)
    assert _state(data.metadata).topic_configs == {"clicks": {"segment.ms": "6"}}
    data.config(2, "clicks", "segment.ms", None)
    assert _state(data.metadata).topic_configs == {}


def test_removed_topic_loses_settings_and_can_be_recreated(data: KafkaData) -> None:
    data.topic("clicks", CLICKS, retention_ms="5")
    data.record(RemoveTopicRecord(topic_id=CLICKS))
    state = _state(data.metadata)
    assert state.topics == {}
    assert state.topic_configs == {}
    data.topic("clicks", topic_id(2))
    assert _state(data.metadata).topics["clicks"].topic_id == topic_id(2)


def test_only_elections_increase_leader_epoch(
    data: KafkaData,
) -> None:
    data.topic("clicks", CLICKS, leader_epoch=4)
    change = {"partition_id": 0, "topic_id": CLICKS}
    data.record(PartitionChangeRecord(leader=-1, **change))
    data.record(PartitionChangeRecord(leader=7, **change))
    data.record(PartitionChangeRecord(isr=[7, 8], **change))
    data.record(PartitionChangeRecord(replicas=[7, 8], **change))
    partition = _state(data.metadata).topics["clicks"].partitions[0]
    assert partition.leader_epoch == 6
    assert partition.isr == (7, 8)
    assert partition.replicas == (7, 8)


def test_eligible_leader_replica_is_complete() -> None:
    partition = PartitionRecord(
        partition_id=0, topic_id=CLICKS, replicas=[7, 8], isr=[], leader=-1,
        leader_epoch=1, partition_epoch=1, eligible_leader_replicas=[7],
    )  # fmt: skip
    values = _encoded(TopicRecord(name="clicks", topic_id=CLICKS))
    values += _encoded(partition, version=2)
    [found] = _state(values).topics["clicks"].partitions.values()
    assert found.is_complete_on(7)
    assert not found.is_complete_on(8)
    change = PartitionChangeRecord(partition_id=0, topic_id=CLICKS, eligible_leader_replicas=[8])
    [found] = _state(values + _encoded(change, version=2)).topics["clicks"].partitions.values()
    assert found.eligible == (8,)
    [found] = _state([*values, unknown_record(28)]).topics["clicks"].partitions.values()
    assert not found.is_complete_on(7)


def test_metadata_transaction_takes_effect_at_its_end_record(data: KafkaData) -> None:
    data.topic("clicks", CLICKS)
    topic = data.metadata
    assert "clicks" in _state([BEGIN, *topic, END]).topics
    assert "clicks" not in _state([BEGIN, *topic]).topics
    assert "clicks" not in _state([BEGIN, *topic, ABORT]).topics
    assert "clicks" in _state([BEGIN, ABORT, BEGIN, *topic, END]).topics


def test_unsupported_records_are_counted_and_irrelevant_ones_ignored(data: KafkaData) -> None:
    data.config(16, "metrics-1", "interval.ms", "1000")
    data.config(32, "group-1", "consumer.session.timeout.ms", "1000")
    data.config(77, "x", "y", "z")
    values = [unknown_record(key) for key in (0, 7, 10, 17, 18, 18, 18, 19, 20, 27, 99, 99)]
    assert _state(values + data.metadata).not_imported == {
        "records of delegation tokens": 1,
        "ACLs": 2,
        "client metrics subscriptions": 1,
        "settings of groups": 1,
        "settings of unknown resources": 1,
        "metadata records of unknown type 99": 2,
    }


def test_cluster_migrated_from_zookeeper_may_hold_old_formats() -> None:
    assert _state([unknown_record(21)]).may_hold_old_formats


@pytest.mark.parametrize("value", [b"", b"\x02\x02\x00", b"\x01\x02\x07rest", b"\x01\x02\x00\x05"])
def test_error_names_offset_of_undecodable_record(value: bytes) -> None:
    with pytest.raises(UnreadableMetadata, match="record at offset 17"):
        read_state([(17, value)])


# -- the log and its snapshots -----------------------------------------------------------------


def test_log_is_read_across_segments_from_given_offset() -> None:
    first = control_batch(ControlType.LEADER_CHANGE, 0) + values_batch([b"a", b"b"], 1)
    second = values_batch([b"c"], 3)
    assert list(log_values([first, second], 0)) == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert list(log_values([first, second], 2)) == [(2, b"b"), (3, b"c")]


def test_truncated_batch_ends_log() -> None:
    whole = values_batch([b"a"], 0)
    assert list(log_values([whole + values_batch([b"b"], 1)[:-1]], 0)) == [(0, b"a")]


def test_offset_gap_in_log_is_rejected() -> None:
    with pytest.raises(UnreadableMetadata, match="continues at offset 5 instead of 1"):
        list(log_values([values_batch([b"a"], 0), values_batch([b"b"], 5)], 0))
    with pytest.raises(UnreadableMetadata, match="continues at offset 5 instead of 4"):
        list(log_values([values_batch([b"b"], 5)], 4))


def test_corrupt_batch_is_rejected() -> None:
    damaged = bytearray(values_batch([b"a"], 0))
    damaged[-1] ^= 1
    with pytest.raises(UnreadableMetadata, match="start Kafka once more and stop it cleanly"):
        list(log_values([bytes(damaged)], 0))


def test_snapshot_values_exclude_control_records() -> None:
    data = (
        control_batch(ControlType.SNAPSHOT_HEADER, 0)
        + values_batch([b"a", b"b"], 1)
        + control_batch(ControlType.SNAPSHOT_FOOTER, 3)
    )
    assert snapshot_values(data) == [b"a", b"b"]


def test_snapshot_without_footer_is_rejected() -> None:
    data = control_batch(ControlType.SNAPSHOT_HEADER, 0) + values_batch([b"a"], 1)
    with pytest.raises(UnreadableMetadata, match="incomplete and has no footer"):
        snapshot_values(data)
