"""`ConsumerSettings`: the settings of consumers, in addition to the common client settings.

Names, types, bounds and defaults are Kafka's. Source: Kafka 4.3 ConsumerConfig, Heartbeat,
AutoOffsetResetStrategy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from plog.client.settings.client import ClientSettings, Consequence
from plog.client.settings.durations import duration_ms
from plog.client.settings.zookeeper_coordination import (
    ZooKeeperCoordinationSettings,
    check_coordination,
    doubtful_coordination,
)
from plog.settings import MIB, MINUTE_MS, SECOND_MS, SettingType, setting

ResetKind: TypeAlias = Literal["earliest", "latest", "none", "by_duration"]

_BY_DURATION = "by_duration:"
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
_ASSIGNOR_SPELLINGS = tuple(
    (package + java, ours) for ours, java in _ASSIGNORS.items() for package in (_JAVA_PACKAGE, "")
)
_INSTANCE_ID = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class OffsetReset(NamedTuple):
    """Where to start without a committed offset; for ``by_duration``, `duration_ms` ago."""

    kind: ResetKind
    duration_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class _GroupAndFetchSettings(ClientSettings):
    """The settings of consumers, without those of ZooKeeper."""

    group_id: str | None = setting(
        "group.id",
        None,
        "Group whose members share the partitions of the subscribed topics, and for which offsets"
        " are committed. Without a group, the consumer reads all partitions and does not commit"
        " offsets.",
        type=SettingType.STRING,
        importance="high",
        group="Group",
    )
    coordination: str = setting(
        "coordination",
        "group",
        "What coordinates the group and stores its offsets: `group` means a broker; `zookeeper`"
        " means ZooKeeper, as in Kafka 0.8 ([more](zookeeper-consumers.md)).",
        one_of=("group", "zookeeper"),
        any_case=True,
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        None,
        "Makes this consumer a static member, which can restart within `session.timeout.ms` and"
        " get its partitions back without a rebalance. Must be unique for each member.",
        type=SettingType.STRING,
    )
    group_protocol: str = setting(
        "group.protocol",
        "classic",
        "Group protocol. `consumer` (KIP-848) is not supported.",
        one_of=("classic",),
        any_case=True,
        importance="high",
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        ("range", "cooperative-sticky"),
        "Partition assignors in order of preference; the group uses one that all members support."
        " Names of Kafka's Java classes are accepted; pass your own assignors as Python objects,"
        " `assignors=…`.",
        one_of=tuple(_ASSIGNORS),
        spellings=_ASSIGNOR_SPELLINGS,
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        45 * SECOND_MS,
        "Time without a heartbeat after which the coordinator removes a member; the broker limits"
        " the value.",
        at_least=0,
        unit="ms",
        importance="high",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        3 * SECOND_MS,
        "Interval between heartbeats. Must be below `session.timeout.ms`, ideally a third of it.",
        at_least=0,
        unit="ms",
        importance="high",
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        5 * MINUTE_MS,
        "Maximum time between polls. A member that exceeds it leaves the group, and its"
        " partitions are assigned to other members.",
        at_least=1,
        unit="ms",
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit",
        True,
        "Whether to commit positions automatically: every `auto.commit.interval.ms`, on rebalances"
        " and on `close`. Off without a `group.id`.",
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms",
        5 * SECOND_MS,
        "Interval between automatic commits.",
        at_least=0,
        unit="ms",
        importance="low",
    )

    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "latest",
        "Where to start if there is no valid committed offset: `earliest`, `latest`,"
        " `by_duration:P7D` (that long ago), or `none` (raise an error).",
        spellings=(
            ("smallest", "earliest"),
            ("beginning", "earliest"),
            ("largest", "latest"),
            ("end", "latest"),
            ("error", "none"),
        ),
        group="Records",
    )
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        "Whether to read transactional records only after their transaction is committed.",
        one_of=("read_uncommitted", "read_committed"),
    )
    max_poll_records: int = setting(
        "max.poll.records",
        500,
        "Maximum number of records that a `consume` call returns; fetch requests are not affected.",
        at_least=1,
    )
    check_crcs: bool = setting(
        "check.crcs",
        True,
        "Whether to verify the checksums of record batches.",
        importance="low",
    )
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        True,
        "Whether subscribing to a missing topic can create it, if the broker allows that. If not,"
        " polls raise UnknownTopicOrPartition for it; otherwise one warning is logged.",
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        True,
        "Whether a pattern subscription excludes Kafka's internal topics.",
    )
    client_rack: str = setting(
        "client.rack",
        "",
        "Rack of this client, as in `broker.rack`; the client can then read from nearby replicas.",
        importance="low",
    )

    fetch_min_bytes: int = setting(
        "fetch.min.bytes",
        1,
        "Minimum amount of data in a fetch response; after `fetch.max.wait.ms`, the broker"
        " responds with less.",
        at_least=0,
        unit="bytes",
        importance="high",
        group="Fetching",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        50 * MIB,
        "Maximum size of a fetch response; a single large batch can exceed it.",
        at_least=0,
        unit="bytes",
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms",
        500,
        "Maximum time for which the broker waits for `fetch.min.bytes`.",
        at_least=0,
        unit="ms",
        importance="low",
        aliases=("fetch.wait.max.ms",),
    )
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes",
        MIB,
        "Maximum amount of data per partition in a fetch response; a single large batch can"
        " exceed it.",
        at_least=0,
        unit="bytes",
        importance="high",
        aliases=("fetch.message.max.bytes",),
    )


# A dataclass takes the fields of its bases in reverse order, so the docs end with ZooKeeper.
@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ZooKeeperCoordinationSettings, _GroupAndFetchSettings):
    """The immutable settings of one consumer."""

    @property
    def offset_reset(self) -> OffsetReset:
        """`auto_offset_reset`, parsed. Raises ValueError, which `from_options` reports."""
        return parse_offset_reset(self.auto_offset_reset)

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        # Parse the value only to find errors; `offset_reset` parses it again.
        try:
            parse_offset_reset(self.auto_offset_reset)
        except ValueError as error:
            yield "auto.offset.reset", str(error)
        yield from self._check_group()
        yield from check_coordination(
            self,
            is_used=self.coordination == "zookeeper",
            group_id=self.group_id,
            assignors=self.partition_assignment_strategy,
            explicit=self.explicit,
        )
        # Without new records, the broker holds each fetch for fetch.max.wait.ms.
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            yield (
                "fetch.max.wait.ms",
                f"must be below request.timeout.ms ({self.request_timeout_ms}); otherwise every"
                " fetch without new records times out",
            )

    def _check_group(self) -> Iterator[tuple[str, str]]:
        if self.group_id == "":
            yield "group.id", "is empty; omit it to use no group"
        # Without a group, the default is silently disabled (see `consequences`).
        commits = self.enable_auto_commit and "enable.auto.commit" in self.explicit
        if commits and self.group_id is None:
            yield "enable.auto.commit", "requires a group.id: offsets are committed for a group"
        name = self.group_instance_id
        # As in Kafka, the rules for topic names apply (KIP-345).
        if name is not None and (not _INSTANCE_ID.fullmatch(name) or name in (".", "..")):
            yield (
                "group.instance.id",
                "allowed: 1 to 249 letters, digits, dots, underscores and hyphens",
            )
        # Otherwise, a single late heartbeat would end the session.
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield (
                "heartbeat.interval.ms",
                f"must be below session.timeout.ms ({self.session_timeout_ms}), ideally a third"
                " of it",
            )
        if not self.partition_assignment_strategy:
            yield "partition.assignment.strategy", "is empty; set at least one assignor"

    def doubts(self) -> Iterator[str]:
        yield from super().doubts()
        if self.coordination == "zookeeper":
            yield from doubtful_coordination(self.explicit)
        # The broker can never return enough data to respond early.
        if self.fetch_min_bytes > self.fetch_max_bytes:
            yield (
                f"fetch.min.bytes={self.fetch_min_bytes} exceeds"
                f" fetch.max.bytes={self.fetch_max_bytes}, so every fetch waits for"
                " fetch.max.wait.ms"
            )

    def consequences(self) -> Iterator[Consequence]:
        yield from super().consequences()
        if self.group_id is None and self.enable_auto_commit:
            yield Consequence("enable_auto_commit", False)


def parse_offset_reset(text: str) -> OffsetReset:
    """Parse a value of ``auto.offset.reset``. Raises ValueError.

    >>> parse_offset_reset("by_duration:PT1H")
    OffsetReset(kind='by_duration', duration_ms=3600000)
    """
    if text.startswith(_BY_DURATION):
        ago_ms = duration_ms(text.removeprefix(_BY_DURATION))
        if ago_ms < 0:
            raise ValueError("the duration is negative; use a positive duration")
        return OffsetReset("by_duration", ago_ms)
    for kind in get_args(ResetKind):
        # ``by_duration`` needs a duration.
        if text == kind and kind != "by_duration":
            return OffsetReset(kind)
    raise ValueError(
        "not one of the allowed values; allowed: earliest, latest, none, by_duration:PnDTnHnMnS"
    )
