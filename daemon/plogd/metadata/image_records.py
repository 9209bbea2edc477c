"""The records from which an image can be built again, in the order of a snapshot.

The features come first, because Kafka's tools must know the metadata version before they decode
other records. Brokers precede partitions: the record of a broker raises the leader epochs of the
partitions that exist at this point of the log (docs/decisions/0002), and in a snapshot, these
epochs are already final.

Source: Kafka 4.3 MetadataImage.write and the images that it consists of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plog.wire.internal.metadata_records import FeatureLevelRecord, MetadataRecord
from plogd.features import METADATA_VERSION
from plogd.metadata.image import MetadataImage, registration_record
from plogd.metadata.store import ABSENT, Change, Key, TopicValue

_WITH_OWN_RECORDS: Final = ("config", "client_quota", "producer_ids", "acl", "scram")
"""First elements of keys whose records do not depend on other keys."""
_KINDS: Final = {"feature", "broker", "topic", "partition", *_WITH_OWN_RECORDS}


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield the records of all keys in `image`, which must not change during the iteration."""
    # A snapshot without the keys of a new kind would lose them.
    assert image.kinds <= _KINDS, image.kinds
    # metadata.version first, even if other features exist.
    features = sorted(image.items("feature"), key=lambda item: item[0][1] != METADATA_VERSION)
    for key, level in features:
        yield FeatureLevelRecord(name=str(key[1]), feature_level=level)
    for _, registration in image.items("broker"):
        yield registration_record(registration, registration.broker_epoch)
    for key, topic in image.items("topic"):
        yield from _topic_records(image, key, topic)
    # The changes that add all keys to an empty image have the records of the whole image.
    empty = MetadataImage()
    for kind in _WITH_OWN_RECORDS:
        for key, value in image.items(kind):
            yield from empty.records_for(Change(key=key, value=value, expected=ABSENT), {})


def _topic_records(image: MetadataImage, key: Key, topic: TopicValue) -> Iterator[MetadataRecord]:
    empty, name = MetadataImage(), str(key[1])
    yield from empty.records_for(Change(key=key, value=topic, expected=ABSENT), {})
    for number in topic.assignments:
        partition: Key = ("partition", name, number)
        value, _ = image.get(partition)
        change = Change(key=partition, value=value, expected=ABSENT)
        yield from empty.records_for(change, {name: topic})
