"""The changes that write the contents of a `MetadataImage` to another, empty store.

Pure. Registrations of brokers and feature levels are not copied: they belong to the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plog.wire.internal.metadata_records import decode_metadata_record
from plogd.metadata.image import MetadataImage
from plogd.metadata.store import ABSENT, Change, Key


def image_of(values: Iterable[tuple[int, bytes]]) -> MetadataImage:
    """Return the image after encoded records with their offsets. Raises WireError, ValueError."""
    image = MetadataImage()
    for offset, value in values:
        image.replay(decode_metadata_record(value), offset)
    return image


def topic_writes(image: MetadataImage, max_changes: int) -> Iterator[list[Change]]:
    """Yield the writes of the controller, each with at most `max_changes` changes."""
    partitions: dict[str, list[Change]] = {}
    for key, (value, _) in sorted(image.load(("partition",)).items()):
        partitions.setdefault(str(key[1]), []).append(_new(key, value))
    for key, (value, _) in sorted(image.load(("topic",)).items()):
        name = str(key[1])
        changes = [_new(key, value)]
        config_key: Key = ("config", "topic", name)
        config, version = image.get(config_key)
        if version != ABSENT:
            changes.append(_new(config_key, config))
        changes += partitions.get(name, [])
        for start in range(0, len(changes), max_changes):
            yield changes[start : start + max_changes]


def shared_changes(image: MetadataImage) -> Iterator[Change]:
    """Yield the changes that any broker may write: settings, ACLs, quotas and credentials."""
    for kind in ("config", "producer_ids", "acl", "client_quota", "scram"):
        for key, (value, _) in image.load((kind,)).items():
            # Settings of topics are written with their topics.
            if key[:2] != ("config", "topic"):
                yield _new(key, value)


def _new(key: Key, value: object) -> Change:
    return Change(key=key, value=value, expected=ABSENT)
