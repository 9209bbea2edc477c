"""Detect subscribed or assigned topics and partitions that do not exist.

For a short time, brokers may not know a topic that was just created. A topic is therefore
considered missing only after several consecutive Metadata responses. If a broker may create the
topic, a warning is logged once; otherwise, the application receives an error. A partition that an
existing topic lacks is never created automatically, so it is always an error.

`ConsumerCore` passes each new metadata snapshot, and raises or logs the result. Subscriptions by
pattern are not checked, because they may match topics that do not exist yet. Kafka 4.3's consumer
only logs a warning for each response.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from plog.client.network.metadata import ClusterMetadata
from plog.errors import ErrorCode, UnknownTopicOrPartition
from plog.types import TopicPartition

ANSWERS_NEEDED = 4
"""The number of consecutive responses without the topic; 0.7 s with default retry.backoff.ms."""

Missing: TypeAlias = TopicPartition | str
"""A missing topic, or a missing partition of an existing topic."""


class Report(NamedTuple):
    """Topics and partitions that have just been found to be missing."""

    errors: dict[Missing, UnknownTopicOrPartition]
    """Errors for the application; topics and partitions found in one check share one error."""
    awaited: tuple[str, ...]
    """Topics that a broker may still create; a warning is logged for them."""


class _Count:
    """The number of consecutive responses without a topic, and when it was last reported."""

    __slots__ = ("answers", "reported_s")

    def __init__(self) -> None:
        self.answers = 0
        self.reported_s: float | None = None


class MissingTopics:
    """The missing topics and partitions of a consumer. Use only in the engine's thread.

    The error for a subscribed topic is repeated every `repeat_s` while it is missing; for assigned
    partitions, `OffsetFetcher` repeats it.
    """

    def __init__(self, *, may_be_created: bool, repeat_s: float) -> None:
        self._may_be_created = may_be_created
        self._repeat_s = repeat_s
        self._counts: dict[Missing, _Count] = {}
        self._metadata = ClusterMetadata()

    def reset(self) -> None:
        """Forget all reports, because the subscription or assignment has changed."""
        self._counts = {}

    def check(
        self,
        metadata: ClusterMetadata,
        topics: Iterable[str],
        partitions: Collection[TopicPartition],
        now_s: float,
    ) -> Report:
        """Return topics and partitions newly found to be missing from a new snapshot."""
        self._metadata = metadata
        subscribed = set(topics)
        wanted: set[Missing] = {*subscribed, *(one.topic for one in partitions), *partitions}
        missing = _missing(metadata, wanted)
        for one in tuple(self._counts):
            # Reset the count as soon as a response contains the topic.
            if one not in missing and (one not in wanted or _topic_of(one) in metadata.answered):
                del self._counts[one]
        errors, awaited = [], []
        for one in sorted(missing, key=str):
            # Count only topics that the latest response covers; other entries may be out of date.
            if _topic_of(one) not in metadata.answered:
                continue
            count = self._counts.setdefault(one, _Count())
            count.answers += 1
            # For a short time, some brokers may not know a topic that was just created.
            if count.answers < ANSWERS_NEEDED:
                continue
            # A metadata request can create a topic, but never partitions of an existing topic.
            if isinstance(one, str) and self._may_be_created:
                if count.reported_s is None:
                    count.reported_s = now_s
                    awaited.append(one)
            elif count.reported_s is None or (
                one in subscribed and now_s - count.reported_s >= self._repeat_s
            ):
                # The offset fetcher repeats the errors for assigned partitions; only the errors for
                # subscribed topics are repeated here.
                count.reported_s = now_s
                errors.append(one)
        error = self._error(errors)
        return Report(dict.fromkeys(errors, error), tuple(awaited))

    def error_of(self, partition: TopicPartition) -> UnknownTopicOrPartition | None:
        """Return the error for a partition that is known to be missing, or None."""
        for one in (partition, partition.topic):
            count = self._counts.get(one)
            if count is not None and count.answers >= ANSWERS_NEEDED:
                return self._error([one])
        return None

    def may_appear(self, partition: TopicPartition) -> bool:
        """Return whether a broker may create the partition, so that waiting makes sense."""
        return self._may_be_created and partition not in self._counts

    def _error(self, missing: list[Missing]) -> UnknownTopicOrPartition:
        reasons = []
        for one in missing:
            if isinstance(one, TopicPartition):
                count = self._metadata.partition_count(one.topic)
                has = "1 partition" if count == 1 else f"{count} partitions"
                reasons.append(
                    f"partition {one} does not exist because topic {one.topic} has {has}"
                )
            else:
                reasons.append(f"topic {one} does not exist")
        return UnknownTopicOrPartition(
            f"cannot read all assigned or subscribed topics: {'; '.join(reasons)}; correct the"
            " names, or create the missing topics or partitions"
        )


def _topic_of(missing: Missing) -> str:
    return missing.topic if isinstance(missing, TopicPartition) else missing


def _missing(metadata: ClusterMetadata, wanted: Collection[Missing]) -> set[Missing]:
    """Return the elements of `wanted` that, according to the snapshot, do not exist."""
    found: set[Missing] = set()
    for one in wanted:
        topic = metadata.topics.get(_topic_of(one))
        if topic is None:
            continue
        if isinstance(one, TopicPartition):
            # An empty list means that the topic has an error, not that it has no partitions.
            if topic.partitions and one.partition >= len(topic.partitions):
                found.add(one)
        elif topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found.add(one)
    return found
