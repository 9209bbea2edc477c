"""Memory accounting of consumer groups, with bounds per member, per group and in total.

Clients determine how much metadata a member has, and how many members and groups exist. Therefore,
each group counts its bytes (`Group.size_bytes`), and `GroupMemory` counts the bytes of all groups.
A request that would exceed a bound is rejected before it changes anything. An existing member can
always rejoin if its metadata has not grown.

A request that waits for its shard to be loaded or its topic to be created counts from its arrival
(`hold`). The group object itself counts only until its first generation; after that, the group is
kept for its committed offsets.

Reactor thread only. Kafka limits only the number of members (``group.max.size``).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from plog.errors import CoordinatorNotAvailable, GroupMaxSizeReached, InvalidRequest, KafkaError
from plog.wire.messages.join_group import JoinGroupRequest
from plog.wire.messages.sync_group import SyncGroupRequest
from plogd.config import BrokerConfig
from plogd.ports import Clock, Report, silence

MAX_PROTOCOLS: Final = 100
"""Maximum number of protocols per member. Clients send one per assignor: one to four."""

_PROTOCOL_BYTES: Final = 200
"""Estimated memory of a protocol in addition to its name and metadata."""

# Rejected clients can retry in a loop, which would fill the log.
_REPORT_INTERVAL_MS: Final = 60_000.0
_SHOWN_LENGTH: Final = 200  # A name can have 32,767 characters.
_ASSIGNMENT: Final = attrgetter("assignment")
_MEMBER_ID: Final = attrgetter("member_id")


class GroupMemory:
    """The memory that all groups on a broker use; `used_bytes` includes waiting requests."""

    def __init__(
        self, config: Callable[[], BrokerConfig], clock: Clock, report: Report = silence
    ) -> None:
        self.used_bytes = 0
        self._config = config
        self._clock = clock
        self._report = report
        self._quiet_until_ms = 0.0

    def hold(self, group_id: str, nbytes: int) -> Callable[[], None]:
        """Count a request that may have to wait; call the returned function when it runs or ends.

        Raises CoordinatorNotAvailable if it exceeds the bound for all groups.
        """
        self._check_total(group_id, nbytes)
        # Counted even before the group exists, because the request itself occupies the memory.
        self.used_bytes += nbytes
        held_bytes = nbytes

        def release() -> None:
            nonlocal held_bytes
            self.used_bytes -= held_bytes
            held_bytes = 0  # `release` is called again when the request ends.

        return release

    def check_growth(self, group_id: str, size_bytes: int, growth_bytes: int) -> None:
        """Raise an error if a group of `size_bytes` must not grow by `growth_bytes`.

        Raises GroupMaxSizeReached for the group's bound, CoordinatorNotAvailable for the total.
        """
        # A group that already exceeds a bound must be able to shrink.
        if growth_bytes <= 0:
            return
        limit = self._config().plog_group_max_bytes
        if size_bytes + growth_bytes > limit:
            raise self._refused(
                GroupMaxSizeReached(
                    f"group {shortened(group_id)} would use {size_bytes + growth_bytes} bytes, more"
                    f" than plog.group.max.bytes ({limit})"
                )
            )
        self._check_total(group_id, growth_bytes)

    def _check_total(self, group_id: str, growth_bytes: int) -> None:
        limit = self._config().plog_groups_max_bytes
        if self.used_bytes + growth_bytes > limit:
            raise self._refused(
                CoordinatorNotAvailable(
                    f"group {shortened(group_id)} cannot grow: all groups would use"
                    f" {self.used_bytes + growth_bytes} bytes, more than plog.groups.max.bytes"
                    f" ({limit})"
                )
            )

    def check_join(self, request: JoinGroupRequest) -> int:
        """Return the size of a JoinGroup. Raises InvalidRequest if it exceeds a member's bound."""
        if len(request.protocols) > MAX_PROTOCOLS:
            raise self._refused(
                InvalidRequest(
                    f"a member of group {shortened(request.group_id)} lists"
                    f" {len(request.protocols)} protocols; at most {MAX_PROTOCOLS} are allowed"
                )
            )
        size_bytes = sum(
            protocol_bytes(protocol.name, protocol.metadata) for protocol in request.protocols
        )
        ids = (request.group_id, request.member_id, request.group_instance_id, request.reason)
        size_bytes += sum(len(text) for text in ids if text)
        self._check_member(request.group_id, "sends", size_bytes)
        return size_bytes

    def check_sync(self, request: SyncGroupRequest) -> int:
        """Return the size of a SyncGroup. Raises InvalidRequest if it exceeds a bound.

        Only the assignments of members are stored; any others are dropped.
        """
        # `map` avoids interpreted steps for each of up to 50,000 elements.
        sizes = list(map(len, map(_ASSIGNMENT, request.assignments)))
        self._check_member(request.group_id, "is assigned", max(sizes, default=0))
        total_bytes = sum(sizes) + sum(map(len, map(_MEMBER_ID, request.assignments)))
        limit = self._config().plog_group_max_bytes
        if total_bytes > limit:
            raise self._refused(
                InvalidRequest(
                    f"the assignments of group {shortened(request.group_id)} are {total_bytes}"
                    f" bytes long, more than plog.group.max.bytes ({limit})"
                )
            )
        return total_bytes

    def _check_member(self, group_id: str, verb: str, size_bytes: int) -> None:
        limit = self._config().plog_group_member_max_bytes
        if size_bytes > limit:
            raise self._refused(
                InvalidRequest(
                    f"a member of group {shortened(group_id)} {verb} {size_bytes} bytes, more than"
                    f" plog.group.member.max.bytes ({limit})"
                )
            )

    def _refused(self, error: KafkaError) -> KafkaError:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _REPORT_INTERVAL_MS
            self._report("rejected a member: {error}", error=error.message, level="warn")
        return error


def protocol_bytes(name: str, metadata: bytes) -> int:
    """Return the estimated memory of a member's protocol."""
    return _PROTOCOL_BYTES + len(name) + len(metadata)


def shortened(text: str) -> str:
    """Return a client-supplied name, shortened for a log line.

    >>> shortened("g" * 32_000)[-35:]
    'gggggggggg... (32000 characters)'
    """
    if len(text) <= _SHOWN_LENGTH:
        return text
    return f"{text[:_SHOWN_LENGTH]}... ({len(text)} characters)"
