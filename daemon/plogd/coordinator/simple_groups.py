"""Groups without members: those that are only a name for committed offsets.

A consumer that assigns its partitions itself commits under a group id and never joins; Kafka calls
what appears then a simple group. Groups that had members when a log was taken over from Kafka are
remembered as they were written.

Source: Kafka 4.3 GroupMetadataManager.getOrMaybeCreateClassicGroup, ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from plog.errors import KafkaError, NonEmptyGroup, UnknownMemberId
from plog.wire.internal.group_records import NO_TIMESTAMP, GroupMetadataKey, GroupMetadataValue

_CONSUMER = "consumer"


class SimpleGroupState(Enum):
    """Whether the log knows of members; the values are what clients are told."""

    EMPTY = "Empty"
    STABLE = "Stable"


class SimpleGroup:
    """A group as the log has it: a simple one if `written` is None."""

    def __init__(self, written: GroupMetadataValue | None = None) -> None:
        self._written = written

    @property
    def state(self) -> SimpleGroupState:
        """Empty, unless a log we took over says otherwise."""
        return SimpleGroupState.EMPTY if self.is_empty else SimpleGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self._written is None or not self._written.members

    @property
    def empty_since(self) -> int | None:
        """Wall-clock ms at which the last member left; None if that is not known."""
        if self._written is None or not self.is_empty:
            return None
        since = self._written.current_state_timestamp
        return None if since == NO_TIMESTAMP else since

    @property
    def protocol_type(self) -> str | None:
        """None for a group that has only ever committed offsets."""
        return None if self._written is None else self._written.protocol_type or None

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members consume topics."""
        return self.protocol_type == _CONSUMER

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Not known, if there are members."""
        return frozenset() if self.is_empty and self.uses_consumer_protocol else None

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic, or might."""
        return self.subscribed_topics is None and self.uses_consumer_protocol

    def validate_offset_delete(self) -> None:
        """Raise NonEmptyGroup if no offset of the group may be deleted."""
        if not self.is_empty and not self.uses_consumer_protocol:
            raise NonEmptyGroup("the group has members: stop them first")


class SimpleGroups:
    """All groups of a shard."""

    def __init__(self) -> None:
        self._groups: dict[str, SimpleGroup] = {}

    def group(self, group_id: str) -> SimpleGroup | None:
        """The group of this id."""
        return self._groups.get(group_id)

    def get_or_create_simple(self, group_id: str) -> SimpleGroup:
        """The group of this id; one without members if there is none."""
        return self._groups.setdefault(group_id, SimpleGroup())

    def group_ids(self) -> Iterable[str]:
        """Every group there is."""
        return self._groups.keys()

    def validate_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        version: int,
    ) -> None:
        """Raise UnknownMemberId unless the commit comes from who is in no group."""
        if generation_id < 0 and self._groups[group_id].is_empty:
            return
        raise UnknownMemberId(f"group {group_id} has no member {member_id or 'without an id'}")

    def replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """The group is as `value` says from now on, or is not there any more."""
        if value is None:
            self._groups.pop(key.group, None)
        else:
            self._groups[key.group] = SimpleGroup(value)

    def on_loaded(self) -> None:
        """Nobody is waited for."""

    def on_unloaded(self, error: KafkaError) -> None:
        """Nobody waits."""
