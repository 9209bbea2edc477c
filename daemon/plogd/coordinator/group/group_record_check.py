"""Check records that clients write to `__consumer_offsets`: the group coordinator must replay them.

Kafka's own tools may write to the topic. A record that cannot be replayed would be skipped at the
next load, so it is refused instead. Pure and safe on any thread: jobs of replica/append_queue.py
call it for each record.
"""

from __future__ import annotations

from plog.errors import InvalidRecord
from plog.wire.internal import group_records
from plog.wire.internal.group_records import GroupMetadataKey, GroupMetadataValue
from plog.wire.primitives import WireError
from plogd.coordinator.group.group_records import group_from_record


def check_group_record(key: bytes | None, value: bytes | None) -> None:
    """Raise InvalidRecord unless the group coordinator can replay this record."""
    try:
        record = group_records.decode(key, value)
    except WireError as error:
        raise InvalidRecord(f"not a record of the group coordinator: {error}") from None
    if record is None:
        raise InvalidRecord("a record of a group protocol that this broker does not support")
    if isinstance(record.key, GroupMetadataKey) and isinstance(record.value, GroupMetadataValue):
        group_from_record(record.key.group, record.value)
