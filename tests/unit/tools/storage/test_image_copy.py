"""The changes that write an image to another store."""

from __future__ import annotations

from plogd.metadata.image import MetadataImage
from plogd.metadata.store import (
    ABSENT,
    Change,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
)
from plogd.tools.storage.image_copy import image_of, shared_changes, topic_writes
from tests.helpers.log.metadata_site import MetadataSite
from tests.helpers.metadata_sites import ZooKeeperSite

CONFIG = {"retention.ms": "1"}


def changes_of(name: str, partitions: int) -> list[Change]:
    topic = TopicValue(
        topic_id=name.encode().ljust(16), assignments=dict.fromkeys(range(partitions), (1,))
    )
    state = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
    values: dict[Key, object] = {("topic", name): topic, ("config", "topic", name): CONFIG}
    values |= {("partition", name, number): state for number in range(partitions)}
    return [Change(key=key, value=value, expected=ABSENT) for key, value in values.items()]


def image() -> MetadataImage:
    site = MetadataSite()
    store = site.start()
    for name, partitions in (("large", 150), ("small", 1)):
        site.settle(store.write_atomic(changes_of(name, partitions)))
    ids = ProducerIdsValue(broker_id=1, broker_epoch=0, next_producer_id=3000)
    site.settle(store.write([Change(key=("producer_ids",), value=ids, expected=ABSENT)]))
    broker = Change(key=("config", "broker", ""), value={"a": "b"}, expected=ABSENT)
    site.settle(store.write([broker]))
    found = store.stable_image
    assert found is not None
    return found


def test_each_topic_is_written_with_its_settings_in_writes_of_limited_size() -> None:
    writes = list(topic_writes(image(), 64))
    assert [len(write) for write in writes] == [64, 64, 24, 3]
    assert [change.key for change in writes[0][:2]] == [
        ("topic", "large"),
        ("config", "topic", "large"),
    ]
    assert writes[3][2].key == ("partition", "small", 0)


def test_registrations_and_features_are_not_copied() -> None:
    keys = {change.key for change in shared_changes(image())}
    assert keys == {("producer_ids",), ("config", "broker", "")}


def test_store_in_zookeeper_accepts_all_changes_of_an_image() -> None:
    site, source = ZooKeeperSite(), image()
    term = site.settle(site.store.campaign())
    for write in topic_writes(source, site.store.max_atomic_changes):
        site.settle(site.store.write_atomic(write, term))
    for change in shared_changes(source):
        site.settle(site.store.write_atomic([change]))
    for kind in ("topic", "config", "producer_ids"):
        copied = {key: value for key, (value, _) in site.store.load((kind,)).items()}
        original = {key: value for key, (value, _) in source.load((kind,)).items()}
        if kind == "producer_ids":
            assert copied[kind,].next_producer_id == original[kind,].next_producer_id
        else:
            assert copied == original
    states = site.store.load(("partition",))
    assert {value.leader for value, _ in states.values()} == {1}
    assert len(states) == 151


def test_image_of_no_records_is_empty() -> None:
    assert image_of([]).kinds == set()
    assert list(topic_writes(image_of([]), 64)) == []
