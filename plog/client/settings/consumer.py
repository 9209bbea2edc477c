"""`ConsumerSettings`: what a consumer is set by, beside what every client is.

Kafka's names, types, bounds and defaults. Source: Kafka 4.3 ConsumerConfig, Heartbeat,
AutoOffsetResetStrategy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from plog.client.settings.client import ClientSettings, Consequence
from plog.client.settings.durations import duration_ms
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
    """Where to begin without a committed offset, `duration_ms` ago for ``by_duration``."""

    kind: ResetKind
    duration_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """The settings of one consumer; immutable."""

    group_id: str | None = setting(
        "group.id",
        None,
        "The group that shares the partitions of what is subscribed to, and for which offsets are"
        " committed. Without one this consumer reads all partitions, and commits nothing.",
        type=SettingType.STRING,
        importance="high",
        group="Group",
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        None,
        "Makes this a static member: it may restart within `session.timeout.ms` and gets its"
        " partitions back without a rebalance. Different for each member.",
        type=SettingType.STRING,
    )
    group_protocol: str = setting(
        "group.protocol",
        "classic",
        "The protocol of groups. That of KIP-848, `consumer`, is not spoken by plog.",
        one_of=("classic",),
        any_case=True,
        importance="high",
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        ("range", "cooperative-sticky"),
        "Ways to share partitions, the best first; the group takes one that all members have. Names"
        " of Kafka's Java classes stand for them, too; others are given as Python objects,"
        " `assignors=…`.",
        one_of=tuple(_ASSIGNORS),
        spellings=_ASSIGNOR_SPELLINGS,
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        45 * SECOND_MS,
        "A member without a heartbeat for this long is out of the group; the broker has bounds for"
        " it.",
        at_least=0,
        unit="ms",
        importance="high",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        3 * SECOND_MS,
        "How often a member shows that it is there. Below `session.timeout.ms`, better a third of"
        " it.",
        at_least=0,
        unit="ms",
        importance="high",
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        5 * MINUTE_MS,
        "A member that does not ask for records for this long leaves its partitions to others.",
        at_least=1,
        unit="ms",
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit",
        True,
        "Whether positions are committed without being told, every `auto.commit.interval.ms`, on"
        " rebalances and on `close`. Off without a `group.id`.",
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms",
        5 * SECOND_MS,
        "How often that is.",
        at_least=0,
        unit="ms",
        importance="low",
    )

    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "latest",
        "Where to begin without a committed offset, or when it is gone: `earliest`, `latest`,"
        " `by_duration:P7D` (that long ago), or `none`, which is an error.",
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
        "Whether records of transactions are read only when they are committed.",
        one_of=("read_uncommitted", "read_committed"),
    )
    max_poll_records: int = setting(
        "max.poll.records",
        500,
        "Most records that one call of `poll` returns; fetching is not bound by it.",
        at_least=1,
    )
    check_crcs: bool = setting(
        "check.crcs",
        True,
        "Whether the checksums of record batches are checked.",
        importance="low",
    )
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        True,
        "Whether subscribing to a topic that does not exist may create it, if the broker does so."
        " If not, polls raise UnknownTopicOrPartition for it; otherwise one warning is logged.",
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        True,
        "Whether a subscription by pattern leaves out Kafka's own topics.",
    )
    client_rack: str = setting(
        "client.rack",
        "",
        "Where this client is, as in `broker.rack`; replicas nearby may be read then.",
        importance="low",
    )

    fetch_min_bytes: int = setting(
        "fetch.min.bytes",
        1,
        "The broker answers a fetch when it has this much, or after `fetch.max.wait.ms`.",
        at_least=0,
        unit="bytes",
        importance="high",
        group="Fetching",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        50 * MIB,
        "Most that one fetch returns, but for a first batch that is larger still.",
        at_least=0,
        unit="bytes",
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms",
        500,
        "How long the broker may wait for `fetch.min.bytes`.",
        at_least=0,
        unit="ms",
        importance="low",
        aliases=("fetch.wait.max.ms",),
    )
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes",
        MIB,
        "Most that one fetch returns of one partition, but for a first batch that is larger still.",
        at_least=0,
        unit="bytes",
        importance="high",
        aliases=("fetch.message.max.bytes",),
    )

    @property
    def offset_reset(self) -> OffsetReset:
        """`auto_offset_reset`, taken apart. Raises ValueError, which `from_options` reports."""
        return parse_offset_reset(self.auto_offset_reset)

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        try:
            parse_offset_reset(self.auto_offset_reset)
        except ValueError as error:
            yield "auto.offset.reset", str(error)
        yield from self._check_group()
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            yield (
                "fetch.max.wait.ms",
                f"has to be below request.timeout.ms ({self.request_timeout_ms}): a fetch that"
                " finds nothing new would always time out",
            )

    def _check_group(self) -> Iterator[tuple[str, str]]:
        if self.group_id == "":
            yield "group.id", "is empty: leave it out to be in no group"
        commits = self.enable_auto_commit and "enable.auto.commit" in self.explicit
        if commits and self.group_id is None:
            yield "enable.auto.commit", "needs a group.id, for which to commit"
        name = self.group_instance_id
        if name is not None and (not _INSTANCE_ID.fullmatch(name) or name in (".", "..")):
            yield (
                "group.instance.id",
                "allowed: 1 to 249 letters, digits, dots, underscores and hyphens",
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield (
                "heartbeat.interval.ms",
                f"has to be below session.timeout.ms ({self.session_timeout_ms}), better a third"
                " of it",
            )
        if not self.partition_assignment_strategy:
            yield "partition.assignment.strategy", "names no way to share partitions"

    def doubts(self) -> Iterator[str]:
        yield from super().doubts()
        if self.fetch_min_bytes > self.fetch_max_bytes:
            yield (
                f"fetch.min.bytes={self.fetch_min_bytes} is above fetch.max.bytes="
                f"{self.fetch_max_bytes}: every fetch will wait for fetch.max.wait.ms"
            )

    def consequences(self) -> Iterator[Consequence]:
        yield from super().consequences()
        if self.group_id is None and self.enable_auto_commit:
            yield Consequence("enable_auto_commit", False)


def parse_offset_reset(text: str) -> OffsetReset:
    """What a value of ``auto.offset.reset`` means. Raises ValueError.

    >>> parse_offset_reset("by_duration:PT1H")
    OffsetReset(kind='by_duration', duration_ms=3600000)
    """
    if text.startswith(_BY_DURATION):
        ago_ms = duration_ms(text.removeprefix(_BY_DURATION))
        if ago_ms < 0:
            raise ValueError("a duration below zero lies in the future")
        return OffsetReset("by_duration", ago_ms)
    for kind in get_args(ResetKind):
        if text == kind and kind != "by_duration":
            return OffsetReset(kind)
    raise ValueError(
        "not one of the possible values; allowed: earliest, latest, none, by_duration:PnDTnHnMnS"
    )
