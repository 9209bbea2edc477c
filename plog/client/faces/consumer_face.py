"""Methods that the consumers of all faces share. Each face adds the methods that wait."""

from __future__ import annotations

from typing import Protocol

from plog.client.faces.method_adapters import direct
from plog.client.faces.polling_consumer import PollingConsumer
from plog.types import TopicPartition


class _Face(Protocol):
    @property
    def _core(self) -> PollingConsumer: ...


class ConsumerFace:
    """The properties and methods that return immediately and may be called from any thread."""

    @property
    def assignment(self: _Face) -> frozenset[TopicPartition]:
        """The partitions currently assigned to this consumer."""
        return self._core.assignment

    @property
    def subscription(self: _Face) -> frozenset[str]:
        """The topics that this consumer is subscribed to; empty after `assign`."""
        return self._core.subscription

    @property
    def paused(self: _Face) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._core.paused

    # These methods only read, so any thread may call them directly.
    group_metadata = direct(PollingConsumer.group_metadata)
    lag = direct(PollingConsumer.lag)
    metrics = direct(PollingConsumer.metrics)


class ReactorConsumerFace(ConsumerFace):
    """Methods that need not wait in a face that runs in the engine's thread."""

    subscribe = direct(PollingConsumer.subscribe)
    assign = direct(PollingConsumer.assign)
    seek = direct(PollingConsumer.seek)
    seek_to_beginning = direct(PollingConsumer.seek_to_beginning)
    seek_to_end = direct(PollingConsumer.seek_to_end)
    seek_to_time = direct(PollingConsumer.seek_to_time)
    pause = direct(PollingConsumer.pause)
    resume = direct(PollingConsumer.resume)
    commit_async = direct(PollingConsumer.commit_async)
    wakeup = direct(PollingConsumer.wake_up)
