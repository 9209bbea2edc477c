"""The records of an image lead to the same image when they are replayed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.types import uuid_to_text
from plog.wire.internal.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from plogd.metadata.image import MetadataImage, registration_record
from plogd.metadata.image_records import image_records
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
from plogd.quota import quota_key
from tests.unit.metadata.test_security_image import ACLS, CREDENTIALS, ENTITIES, QUOTAS

Values = dict[Key, Any]
KINDS = (
    "feature", "broker", "topic", "partition", "config", "producer_ids", "acl", "client_quota",
    "scram",
)  # fmt: skip
NAMES = st.sampled_from("abcd")
SETTINGS = st.dictionaries(st.sampled_from(["x", "y"]), st.text(max_size=3), max_size=2)
NUMBERS = st.integers(0, 1 << 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 2)),
        st.tuples(st.just("elect"), NAMES, st.integers(-1, 2)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("register"), st.integers(0, 2)),
        st.tuples(st.just("topic config"), NAMES, SETTINGS),
        st.tuples(st.just("set"), st.just(("config", "broker", "")), SETTINGS),
        st.tuples(st.just("set"), st.just(("acl", uuid_to_text(b"a" * 16))), ACLS | st.none()),
        st.tuples(st.just("set"), ENTITIES.map(quota_key), QUOTAS | st.none()),
        st.tuples(
            st.just("set"), NAMES.map(lambda user: ("scram", user, 1)), CREDENTIALS | st.none()
        ),
        st.tuples(
            st.just("set"),
            st.just(("producer_ids",)),
            st.builds(
                ProducerIdsValue, broker_id=st.just(1), broker_epoch=NUMBERS,
                next_producer_id=NUMBERS,
            ),
        ),
    ),
    max_size=30,
)  # fmt: skip


def replay(image: MetadataImage, *records: MetadataRecord, offset: int) -> None:
    """Replay encoded records, because an encoded record may have lost something."""
    for record in records:
        image.replay(decode_metadata_record(encode_metadata_record(record, 0)), offset)


def write(image: MetadataImage, offset: int, *changes: tuple[Key, Any]) -> None:
    topics = {str(key[1]): value for key, value in changes if isinstance(value, TopicValue)}
    for key, value in changes:
        change = Change(key=key, value=value, expected=ABSENT)
        replay(image, *image.records_for(change, topics), offset=offset)


def take_step(image: MetadataImage, offset: int, step: tuple[Any, ...]) -> None:
    kind, name, value = (*step, None)[:3]
    topic = image.get(("topic", name))[0]
    match kind:
        case "create" if topic is None:
            create(image, offset, name, b"%16d" % offset, 0, value, {})
        case "grow" if topic is not None:
            assignments = topic.assignments
            create(image, offset, name, topic.topic_id, len(assignments), value, assignments)
        case "elect" if topic is not None:
            change = PartitionChangeRecord(
                partition_id=0, topic_id=topic.topic_id, leader=value, isr=[1, 2]
            )
            replay(image, change, offset=offset)
        case "delete" if topic is not None:
            write(image, offset, (("topic", name), None))
        case "register":
            registration = BrokerRegistration(
                broker_id=name,
                incarnation_id=b"%16d" % offset,
                endpoints=(Endpoint(name="X", host="h", port=9092, security_protocol="SASL_SSL"),),
                rack="r" if name else None,
            )
            replay(image, registration_record(registration, offset), offset=offset)
        case "topic config" if topic is not None:
            write(image, offset, (("config", "topic", name), value))
        case "set" if value is not None or image.get(name)[0] is not None:
            write(image, offset, (name, value))


def create(
    image: MetadataImage, offset: int, name: str, topic_id: bytes, first: int, count: int, old: Any
) -> None:
    new = {number: (1, 2) for number in range(first, first + count)}
    partition = PartitionValue(leader=1, leader_epoch=3, isr=(1,), partition_epoch=4)
    topic = TopicValue(topic_id=topic_id, assignments={**old, **new})
    partitions = [(("partition", name, number), partition) for number in new]
    write(image, offset, (("topic", name), topic), *partitions)


def values_of(image: MetadataImage) -> Values:
    return {key: value for kind in KINDS for key, (value, _) in image.load((kind,)).items()}


@given(STEPS)
def test_image_built_from_its_records_has_the_same_values(steps: list[tuple[Any, ...]]) -> None:
    image = MetadataImage()
    replay(image, FeatureLevelRecord(name="metadata.version", feature_level=11), offset=0)
    for offset, step in enumerate(steps, 1):
        take_step(image, offset, step)
    again = MetadataImage()
    replay(again, *image_records(image), offset=1000)
    assert values_of(again) == values_of(image)
    # Later records refer to topics by their ids.
    for _, topic in image.items("topic"):
        change = PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=7)
        again.replay(change, 1001)


@given(STEPS, STEPS)
def test_copy_keeps_its_values_while_the_image_changes(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    image = MetadataImage()
    for offset, step in enumerate(before, 1):
        take_step(image, offset, step)
    copy, values = image.copy(), values_of(image)
    for offset, step in enumerate(after, 100):
        take_step(image, offset, step)
    assert values_of(copy) == values
    image_values = values_of(image)
    for offset, step in enumerate(after[:3], 200):
        take_step(copy, offset, step)
    assert values_of(image) == image_values


def test_level_and_brokers_come_first() -> None:
    image = MetadataImage()
    take_step(image, 1, ("create", "a", 2))
    replay(image, RegisterBrokerRecord(broker_id=1, broker_epoch=2), offset=2)
    replay(image, FeatureLevelRecord(name="group.version", feature_level=1), offset=3)
    replay(image, FeatureLevelRecord(name="metadata.version", feature_level=11), offset=4)
    assert [type(record).__name__ for record in image_records(image)] == [
        "FeatureLevelRecord",
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
        "PartitionRecord",
    ]
    first = next(image_records(image))
    assert first == FeatureLevelRecord(name="metadata.version", feature_level=11)


def test_unknown_kind_of_key_is_not_left_out_silently() -> None:
    image = MetadataImage()
    image._put(("token", "t"), "secret", 1)
    with pytest.raises(AssertionError, match="token"):
        list(image_records(image))
