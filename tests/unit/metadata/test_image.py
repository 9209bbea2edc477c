"""Replaying records, and the records of changes."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.internal.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from plogd.metadata.image import MetadataImage, registration_record
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Endpoint,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
)

ID = b"i" * 16


def image_of(*records: MetadataRecord) -> MetadataImage:
    image = MetadataImage()
    for offset, record in enumerate(records):
        image.replay(record, offset)
    return image


def partition(number: int = 0, **fields: Any) -> PartitionRecord:
    values: dict[str, Any] = {
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": [1],
        "isr": [1],
    }
    return PartitionRecord(partition_id=number, topic_id=ID, **(values | fields))


TOPIC = (TopicRecord(name="t", topic_id=ID), partition(0), partition(1))


def test_topic_is_built_from_its_records() -> None:
    image = image_of(*TOPIC)
    value, version = image.get(("topic", "t"))
    assert (value, version) == (TopicValue(topic_id=ID, assignments={0: (1,), 1: (1,)}), 2)
    assert image.load(("partition", "t")) == {
        ("partition", "t", number): (
            PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0),
            1 + number,
        )
        for number in (0, 1)
    }


def test_registration_raises_the_epoch_of_partitions_the_broker_leads() -> None:
    stranger = partition(2, leader=9)
    image = image_of(*TOPIC, stranger, RegisterBrokerRecord(broker_id=1, broker_epoch=4))
    epochs = [image.get(("partition", "t", number))[0].leader_epoch for number in range(3)]
    assert epochs == [1, 1, 0]
    assert image.get(("partition", "t", 0))[1] == 4


def test_leader_change_raises_the_epoch_but_isr_change_does_not() -> None:
    image = image_of(*TOPIC)
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1, 2]), 5)
    value = image.get(("partition", "t", 0))[0]
    assert (value.leader_epoch, value.isr, value.partition_epoch) == (0, (1, 2), 1)
    change = PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2, replicas=[2, 1])
    image.replay(change, 6)
    value = image.get(("partition", "t", 0))[0]
    assert (value.leader, value.leader_epoch, value.partition_epoch) == (2, 1, 2)
    assert image.get(("topic", "t"))[0].assignments[0] == (2, 1)


def test_added_partitions_do_not_change_values_already_read() -> None:
    image = image_of(*TOPIC)
    before, version = image.get(("topic", "t"))
    changed = image.replay(partition(2), 7) + image.replay(partition(3, replicas=[2]), 8)
    assert changed[:2] == [("topic", "t"), ("partition", "t", 2)]
    after, next_version = image.get(("topic", "t"))
    assert before.assignments == {0: (1,), 1: (1,)}
    assert after.assignments == {0: (1,), 1: (1,), 2: (1,), 3: (2,)}
    assert (version, next_version) == (2, 8)


def test_new_replicas_do_not_change_values_already_read() -> None:
    image = image_of(*TOPIC)
    before = image.load(("topic",))["topic", "t"][0]
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=ID, replicas=[2]), 7)
    assert before.assignments[0] == (1,)
    assert image.get(("topic", "t"))[0].assignments == {0: (2,), 1: (1,)}


def test_topic_of_thousands_of_partitions_is_built_without_a_copy_for_each() -> None:
    image = image_of(TOPIC[0])
    image.replay(partition(0), 1)
    first = image._entries["topic"]["topic", "t"].value.assignments
    for number in range(1, 50):
        image.replay(partition(number), number + 1)
    assert image.get(("topic", "t"))[0].assignments is first


def test_removing_a_topic_removes_its_partitions_and_settings() -> None:
    image = image_of(*TOPIC, ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"))
    changed = image.replay(RemoveTopicRecord(topic_id=ID), 9)
    assert sorted(map(str, changed)) == sorted(
        map(
            str,
            [
                ("topic", "t"),
                ("partition", "t", 0),
                ("partition", "t", 1),
                ("config", "topic", "t"),
            ],
        )
    )
    assert [image.get(key) for key in changed] == [(None, ABSENT)] * 4


def test_settings_are_set_changed_and_removed() -> None:
    key: Key = ("config", "topic", "t")
    image = MetadataImage()

    def set_(name: str, value: str | None) -> Any:
        image.replay(ConfigRecord(resource_type=2, resource_name="t", name=name, value=value), 0)
        return image.get(key)[0]

    assert set_("a", "1") == {"a": "1"}
    assert set_("b", "2") == {"a": "1", "b": "2"}
    assert set_("a", None) == {"b": "2"}
    assert set_("b", None) is None


def test_other_records_are_applied() -> None:
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=7),
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3000),
        BrokerRegistrationChangeRecord(broker_id=1),
    )
    assert image.get(("feature", "metadata.version"))[0] == 7
    assert image.get(("producer_ids",))[0] == ProducerIdsValue(
        broker_id=1, broker_epoch=2, next_producer_id=3000
    )


@pytest.mark.parametrize(
    "record",
    [
        partition(),
        RemoveTopicRecord(topic_id=ID),
        ConfigRecord(resource_type=77, resource_name="t", name="a", value="b"),
    ],
)
def test_record_that_does_not_fit_the_state_raises(record: MetadataRecord) -> None:
    with pytest.raises(ValueError):
        MetadataImage().replay(record, 0)


class TestRecordsFor:
    """The records of `records_for` make the change when they are replayed."""

    def made(self, image: MetadataImage, *changes: Change) -> MetadataImage:
        new_topics = {str(c.key[1]): c.value for c in changes if isinstance(c.value, TopicValue)}
        records = [record for change in changes for record in image.records_for(change, new_topics)]
        for offset, record in enumerate(records, 100):
            image.replay(record, offset)
        return image

    def test_creating_a_topic_takes_a_topic_record(self) -> None:
        topic = TopicValue(topic_id=ID, assignments={0: (1, 2)})
        state = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
        image = self.made(
            MetadataImage(),
            Change(key=("topic", "t"), value=topic, expected=ABSENT),
            Change(key=("config", "topic", "t"), value={"a": "b"}, expected=ABSENT),
            Change(key=("partition", "t", 0), value=state, expected=ABSENT),
        )
        assert image.get(("topic", "t")) == (topic, 102)
        assert image.get(("config", "topic", "t")) == ({"a": "b"}, 101)
        assert image.get(("partition", "t", 0)) == (state, 102)

    def test_adding_partitions_takes_partition_records(self) -> None:
        image = image_of(*TOPIC)
        topic = TopicValue(topic_id=ID, assignments={0: (1,), 1: (1,), 2: (2,)})
        state = PartitionValue(leader=2, leader_epoch=0, isr=(2,), partition_epoch=0)
        self.made(
            image,
            Change(key=("topic", "t"), value=topic, expected=2),
            Change(key=("partition", "t", 2), value=state, expected=ABSENT),
        )
        assert image.get(("topic", "t")) == (topic, 100)
        assert image.get(("partition", "t", 2)) == (state, 100)

    def test_reassignment_takes_a_change_record_per_partition(self) -> None:
        image = image_of(*TOPIC)
        moving = TopicValue(
            topic_id=ID,
            assignments={0: (1,), 1: (2, 1)},
            adding_replicas={1: (2,)},
            removing_replicas={1: (1,)},
        )
        self.made(image, Change(key=("topic", "t"), value=moving, expected=2))
        assert image.get(("topic", "t")) == (moving, 100)
        moved = TopicValue(topic_id=ID, assignments={0: (1,), 1: (2,)})
        self.made(image, Change(key=("topic", "t"), value=moved, expected=100))
        assert image.get(("topic", "t"))[0] == moved

    def test_reassignment_survives_a_change_of_the_partition(self) -> None:
        image = image_of(*TOPIC)
        moving = TopicValue(
            topic_id=ID, assignments={0: (1,), 1: (2, 1)}, adding_replicas={1: (2,)}
        )
        self.made(image, Change(key=("topic", "t"), value=moving, expected=2))
        state = PartitionValue(leader=2, leader_epoch=5, isr=(1, 2), partition_epoch=9)
        _, version = image.get(("partition", "t", 1))
        self.made(image, Change(key=("partition", "t", 1), value=state, expected=version))
        assert image.get(("topic", "t"))[0] == moving
        assert image.get(("partition", "t", 1))[0] == state

    def test_mark_of_a_pending_deletion_takes_no_record(self) -> None:
        change = Change(key=("delete_topic", "t"), value=True, expected=ABSENT)
        assert image_of(*TOPIC).records_for(change, {}) == []

    @pytest.mark.parametrize(
        "value",
        [
            TopicValue(topic_id=b"o" * 16, assignments={0: (1,), 1: (1,), 2: (1,)}),
            TopicValue(topic_id=ID, assignments={0: (1,)}),
        ],
    )
    def test_other_topic_changes_raise(self, value: TopicValue) -> None:
        with pytest.raises(ValueError, match="its id and its partitions must remain"):
            image_of(*TOPIC).records_for(
                Change(key=("topic", "t"), value=value, expected=2), {"t": value}
            )

    def test_removing_a_topic_takes_a_remove_record(self) -> None:
        image = self.made(image_of(*TOPIC), Change(key=("topic", "t"), value=None, expected=0))
        assert image.load(("partition",)) == {}

    def test_removing_a_missing_key_takes_no_record(self) -> None:
        change = Change(key=("topic", "t"), value=None, expected=ABSENT)
        assert MetadataImage().records_for(change, {}) == []

    def test_changing_settings_takes_a_record_per_difference(self) -> None:
        image = image_of(
            ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
            ConfigRecord(resource_type=2, resource_name="t", name="b", value="2"),
        )
        change = Change(key=("config", "topic", "t"), value={"b": "2", "c": "3"}, expected=1)
        assert image.records_for(change, {}) == [
            ConfigRecord(resource_type=2, resource_name="t", name="a", value=None),
            ConfigRecord(resource_type=2, resource_name="t", name="c", value="3"),
        ]

    def test_allocating_producer_ids_takes_a_record(self) -> None:
        value = ProducerIdsValue(broker_id=1, broker_epoch=5, next_producer_id=1000)
        image = self.made(
            MetadataImage(), Change(key=("producer_ids",), value=value, expected=ABSENT)
        )
        assert image.get(("producer_ids",))[0] == value

    def test_read_only_key_cannot_be_written(self) -> None:
        with pytest.raises(ValueError, match="unknown or read-only"):
            MetadataImage().records_for(Change(key=("broker", 1), value=1, expected=ABSENT), {})


def test_registration_survives_its_record() -> None:
    registration = BrokerRegistration(
        broker_id=3,
        incarnation_id=b"x" * 16,
        endpoints=(Endpoint(name="A", host="h", port=9, security_protocol="SASL_SSL"),),
        rack="r",
    )
    record = registration_record(registration, 42)
    assert record.end_points == [BrokerEndpoint(name="A", host="h", port=9, security_protocol=3)]
    image = image_of(record)
    value = image.get(("broker", 3))[0]
    assert (value.endpoints, value.rack, value.broker_epoch) == (registration.endpoints, "r", 42)


def test_registration_with_an_unknown_protocol_raises() -> None:
    end_point = BrokerEndpoint(name="A", host="h", port=9, security_protocol=77)
    with pytest.raises(ValueError, match="unknown security protocol 77"):
        MetadataImage().replay(RegisterBrokerRecord(end_points=[end_point]), 0)
