"""Counters for produced and fetched data per topic: Kafka's BrokerTopicMetrics.

A topic's counters are created on first use and removed when the topic is deleted.
"""

from __future__ import annotations

from plogd.metrics import Counter, Registry
from plogd.replica.delayed_produce import PartitionAppend

_PREFIX = "kafka_server_brokertopicmetrics_"


class _Topic:
    """The counters for one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self, stats: TopicStats, topic: str) -> None:
        self.bytes_in: Counter = stats.bytes_in.labels(topic)
        self.bytes_out: Counter = stats.bytes_out.labels(topic)
        self.messages_in: Counter = stats.messages_in.labels(topic)
        self.produces: Counter = stats.produces.labels(topic)
        self.failed_produces: Counter = stats.failed_produces.labels(topic)
        self.fetches: Counter = stats.fetches.labels(topic)


class TopicStats:
    """The counters for all topics. Called on the reactor thread."""

    def __init__(self, metrics: Registry) -> None:
        labels = ("topic",)
        self.bytes_in = metrics.counters(
            f"{_PREFIX}bytesin_total", "Bytes of record batches appended.", labels
        )
        self.bytes_out = metrics.counters(
            f"{_PREFIX}bytesout_total", "Bytes of record batches sent to consumers.", labels
        )
        self.messages_in = metrics.counters(
            f"{_PREFIX}messagesin_total", "Records appended.", labels
        )
        self.produces = metrics.counters(
            f"{_PREFIX}totalproducerequests_total",
            "Appends requested, counted per partition.",
            labels,
        )
        self.failed_produces = metrics.counters(
            f"{_PREFIX}failedproducerequests_total",
            "Appends rejected, counted per partition.",
            labels,
        )
        self.fetches = metrics.counters(
            f"{_PREFIX}totalfetchrequests_total",
            "Reads that returned data, counted per partition.",
            labels,
        )
        self.replication_bytes_in = metrics.counter(
            f"{_PREFIX}replicationbytesin_total", "Bytes of record batches copied from leaders."
        )
        self.replication_bytes_out = metrics.counter(
            f"{_PREFIX}replicationbytesout_total", "Bytes of record batches sent to followers."
        )
        self._topics: dict[str, _Topic] = {}

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic(self, name)
        return topic

    def appended(self, append: PartitionAppend, nbytes: int) -> None:
        """Count an append to one partition, unless the partition does not exist."""
        # Otherwise, a client could create counters for any number of names.
        if append.partition is None:
            return
        name = append.topic_partition.topic
        # The first lookup is inlined, to save a call per append.
        topic = self._topics.get(name) or self._topic(name)
        topic.produces.value += 1
        info = append.info
        if info is None:
            topic.failed_produces.value += 1
        # A duplicate appends nothing, so its bytes were counted with the original batch.
        elif not info.duplicate:
            topic.bytes_in.value += nbytes
            topic.messages_in.value += info.last_offset - info.first_offset + 1

    def fetched(self, name: str, nbytes: int) -> None:
        """Count the data of one partition in a fetch response."""
        topic = self._topic(name)
        topic.fetches.value += 1
        topic.bytes_out.value += nbytes

    def forget(self, name: str) -> None:
        """Remove the counters for a deleted topic."""
        if self._topics.pop(name, None) is None:
            return
        for family in (
            self.bytes_in,
            self.bytes_out,
            self.messages_in,
            self.produces,
            self.failed_produces,
            self.fetches,
        ):
            family.remove(name)
