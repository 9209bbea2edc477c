"""Records of `__consumer_offsets`: refused, or replayed into a shard without an error.

Each record is two lengths (key and value; 65535 means null) followed by the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.errors import InvalidRecord
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_key,
    encode_value,
)
from plog.wire.messages.describe_groups import DescribeGroupsResponse
from plogd.coordinator.group.group_records import check_group_record
from plogd.coordinator.group.group_shard import GroupShard
from plogd.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord
from tests.fuzz.target import Target
from tests.helpers.group import group_shard
from tests.unit.wire.filled import filled

_NULL = 0xFFFF


def fuzz(data: bytes) -> None:
    """Replay the records, complete the load, and describe all groups."""
    site = group_shard.GroupShard()
    offsets = OffsetMetadataManager(site.groups, config=lambda: site.config, clock=site.ports.clock)
    shard = GroupShard(site.groups, offsets)
    for offset, (key, value) in enumerate(_split(data)):
        try:
            check_group_record(key, value)
        except InvalidRecord:
            continue
        record = decode(key, value)
        assert record is not None
        shard.replay(CoordinatorRecord(*record), offset=offset, producer_id=offset % 3 - 1)
    shard.replay_end_marker(1, committed=True)
    shard.on_loaded()
    for group_id in list(site.groups.group_ids()):
        DescribeGroupsResponse(groups=[site.groups.describe(group_id)]).encode(6)
        offsets.fetch(group_id, offsets.committed_partitions(group_id), require_stable=True)
    site.ports.advance(60_000)


def _split(data: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    position = 0
    while position + 4 <= len(data):
        key_size = int.from_bytes(data[position : position + 2], "big")
        value_size = int.from_bytes(data[position + 2 : position + 4], "big")
        position += 4
        key = value = None
        if key_size != _NULL:
            key = data[position : position + key_size]
            position += key_size
        if value_size != _NULL:
            value = data[position : position + value_size]
            position += value_size
        yield key, value


def _joined(key: bytes, value: bytes | None) -> bytes:
    value_size = _NULL if value is None else len(value)
    return len(key).to_bytes(2, "big") + value_size.to_bytes(2, "big") + key + (value or b"")


def _seeds() -> Iterator[bytes]:
    offset_key = encode_key(OffsetCommitKey(group="g", topic="t", partition=1))
    group_key = encode_key(GroupMetadataKey(group="g"))
    for version in range(5):
        prefix = version.to_bytes(2, "big")
        offset = prefix + filled(OffsetCommitValue, version, 1, long=False).encode(version)
        group = prefix + filled(GroupMetadataValue, version, 2, long=False).encode(version)
        yield _joined(offset_key, offset)
        yield _joined(group_key, group) + _joined(offset_key, offset)
    plain = encode_value(GroupMetadataValue(protocol_type="consumer", generation=2, leader=None))
    yield _joined(group_key, plain) + _joined(group_key, None) + _joined(offset_key, None)


TARGET = Target(name="group_records", fuzz=fuzz, seeds=_seeds)
