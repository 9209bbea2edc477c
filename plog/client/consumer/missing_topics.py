"""Detect that topics or partitions that a consumer reads do not exist, and report it once.

A topic that was just created may be unknown to one broker for a moment, so it counts as missing
only after several Metadata responses in a row have said so. What follows depends on whether a
broker may create it: an error for the application, or one warning in the log. A partition beyond
the last one of an existing topic is never created automatically, so it is always an error.

Pure: `ConsumerCore` passes each new snapshot, and raises or logs what comes back. Subscriptions by
pattern are not checked, since topics that do not exist yet are their purpose. Kafka 4.3's consumer
only logs a warning for each response.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from plog.client.network.metadata import ClusterMetadata
from plog.errors import ErrorCode, UnknownTopicOrPartition
from plog.types import TopicPartition

ANSWERS_NEEDED = 4
"""Responses in a row that must call a topic unknown: 0.7 s at the default retry.backoff.ms."""

Missing: TypeAlias = TopicPartition | str
"""A topic, or a partition of a topic that has fewer."""


class Report(NamedTuple):
    """What is newly known to be missing."""

    errors: dict[Missing, UnknownTopicOrPartition]
    """For the application; one error stands for all that was found at the same time."""
    awaited: tuple[str, ...]
    """Topics that a broker may still create: for the log."""


class _Count:
    """How often in a row something was missing, and when that was last reported."""

    __slots__ = ("answers", "reported_s")

    def __init__(self) -> None:
        self.answers = 0
        self.reported_s: float | None = None


class MissingTopics:
    """The topics and partitions of a consumer that are missing. Engine's thread only.

    The error about a subscribed topic is reported again every `repeat_s` while it is missing; about
    assigned partitions, `OffsetFetcher` does that.
    """

    def __init__(self, *, may_be_created: bool, repeat_s: float) -> None:
        self._may_be_created = may_be_created
        self._repeat_s = repeat_s
        self._counts: dict[Missing, _Count] = {}
        self._metadata = ClusterMetadata()

    def reset(self) -> None:
        """Forget everything: the application subscribes or assigns, and wants to know again."""
        self._counts = {}

    def check(
        self,
        metadata: ClusterMetadata,
        topics: Iterable[str],
        partitions: Collection[TopicPartition],
        now_s: float,
    ) -> Report:
        """Return what is missing after a new snapshot and was not reported before."""
        self._metadata = metadata
        subscribed = set(topics)
        wanted: set[Missing] = {*subscribed, *(one.topic for one in partitions), *partitions}
        missing = _missing(metadata, wanted)
        for one in tuple(self._counts):
            if one not in missing and (one not in wanted or _topic_of(one) in metadata.answered):
                del self._counts[one]
        errors, awaited = [], []
        for one in sorted(missing, key=str):
            if _topic_of(one) not in metadata.answered:
                continue
            count = self._counts.setdefault(one, _Count())
            count.answers += 1
            if count.answers < ANSWERS_NEEDED:
                continue
            if isinstance(one, str) and self._may_be_created:
                if count.reported_s is None:
                    count.reported_s = now_s
                    awaited.append(one)
            elif count.reported_s is None or (
                one in subscribed and now_s - count.reported_s >= self._repeat_s
            ):
                count.reported_s = now_s
                errors.append(one)
        error = self._error(errors)
        return Report(dict.fromkeys(errors, error), tuple(awaited))

    def error_of(self, partition: TopicPartition) -> UnknownTopicOrPartition | None:
        """The error for a partition that is known to be missing, None for others."""
        for one in (partition, partition.topic):
            count = self._counts.get(one)
            if count is not None and count.answers >= ANSWERS_NEEDED:
                return self._error([one])
        return None

    def may_appear(self, partition: TopicPartition) -> bool:
        """Whether a broker may create it, so that waiting for it makes sense."""
        return self._may_be_created and partition not in self._counts

    def _error(self, missing: list[Missing]) -> UnknownTopicOrPartition:
        reasons = []
        for one in missing:
            if isinstance(one, TopicPartition):
                count = self._metadata.partition_count(one.topic)
                has = "1 partition" if count == 1 else f"{count} partitions"
                reasons.append(f"partition {one} does not exist, topic {one.topic} has {has}")
            else:
                reasons.append(f"topic {one} does not exist")
        return UnknownTopicOrPartition(
            f"cannot read what is assigned or subscribed to: {'; '.join(reasons)}; correct the"
            " name, or create it"
        )


def _topic_of(missing: Missing) -> str:
    return missing.topic if isinstance(missing, TopicPartition) else missing


def _missing(metadata: ClusterMetadata, wanted: Collection[Missing]) -> set[Missing]:
    """What of `wanted` does not exist, as far as the snapshot tells."""
    found: set[Missing] = set()
    for one in wanted:
        topic = metadata.topics.get(_topic_of(one))
        if topic is None:
            continue
        if isinstance(one, TopicPartition):
            if topic.partitions and one.partition >= len(topic.partitions):
                found.add(one)
        elif topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found.add(one)
    return found
