"""`OutputLogs`: lookups in the topics that a stream writes, and creation of the topic of notes.

They use blocking sockets, in the driver and in the workers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from plog.client.admin.topics import TopicAdmin
from plog.client.admin.values import NewTopic
from plog.client.errors import error_about
from plog.errors import ErrorCode, KafkaError, TopicAlreadyExists
from plog.spark.reader.cluster_lookup import ClusterLookup
from plog.spark.sink.log_end_lookup import log_ends
from plog.spark.sink.sink_notes import NOTES_TOPIC, Offsets
from plog.types import TopicPartition

_NOTES: Final = NewTopic(
    name=NOTES_TOPIC,
    # The last commit note of a name decides, so all notes need one order.
    partitions=1,
    # Retention would delete the last note of a stream that pauses. Compaction deletes older notes.
    configs={"cleanup.policy": "compact"},
)
# A broker may learn of a new topic later than others.
_LOOKUPS_OF_MISSING: Final = 3
"""How often to look up a missing topic."""


class OutputLogs(ClusterLookup):
    """A connection to the cluster with the output. Close it with `close` or ``with``."""

    def create_notes_topic(self) -> None:
        """Create the topic of notes if it does not exist."""
        # One lookup is enough, because creating an existing topic has no effect.
        if self._run(self._existing([NOTES_TOPIC], attempts=1))[NOTES_TOPIC]:
            return
        created = self._run(TopicAdmin(self._cluster).create_topics([_NOTES]))
        error = created.errors.get(NOTES_TOPIC)
        # Another query may create the topic at the same time.
        if error is not None and not isinstance(error, TopicAlreadyExists):
            raise error

    def ends(self, topics: Collection[str]) -> Offsets:
        """Return the ends of the partitions of each topic; a missing topic has no partitions."""
        existing = self._run(self._existing(topics))
        # No failure of a broker truncates a log below its high watermark, so records that follow it
        # are not missed later.
        bounds = self.bounds([one for partitions in existing.values() for one in partitions])
        return {
            topic: {one.partition: bounds[one].end_offset for one in partitions}
            for topic, partitions in existing.items()
        }

    def unread(self, starts: Offsets) -> dict[TopicPartition, tuple[int, int]]:
        """Return start and end of what to read in each partition, from `starts` on.

        A partition that has no start is new, and read from its beginning. The end includes records
        that the leader has appended and that are not readable yet, because replicas or disks lag.
        """
        existing = self._run(self._existing(starts))
        partitions = [one for some in existing.values() for one in some]
        appended = self._run(log_ends(self._cluster, partitions))
        ranges = {}
        for one, bounds in self.bounds(partitions).items():
            # The end of the log is -1 if the leader does not know it.
            end = max(appended[one], bounds.end_offset)
            start = starts[one.topic].get(one.partition, 0)
            # If the log ends earlier, the topic has been recreated.
            start = max(start if start <= end else 0, bounds.start_offset)
            ranges[one] = (start, max(start, end))
        return ranges

    async def _existing(
        self, topics: Collection[str], *, attempts: int = _LOOKUPS_OF_MISSING
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each topic; an empty list if it is missing."""
        found: dict[str, list[TopicPartition]] = {topic: [] for topic in topics}
        left = set(found)
        backoff = self._cluster.backoff()
        while left:
            metadata = await self._cluster.refresh(left, deadline=backoff.deadline)
            problem: KafkaError | None = None
            for topic in sorted(left):
                known = metadata.topics.get(topic)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
                if known is None or code:
                    problem = error_about(code, f"topic {topic}")
                    if not problem.retriable:
                        raise problem
                    is_missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if not (is_missing and attempts <= 1):
                        continue
                else:
                    found[topic] = [TopicPartition(topic, x.index) for x in known.partitions]
                left.remove(topic)
            attempts -= 1
            if left and problem is not None:
                await backoff.wait_or_raise(problem)
        return found
