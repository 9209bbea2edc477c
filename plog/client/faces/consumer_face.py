"""The consumer methods that all faces share; each face adds the methods that wait."""

from __future__ import annotations

from typing import Protocol

from plog.client.faces.method_adapters import direct
from plog.client.faces.polling_consumer import PollingConsumer
from plog.types import TopicPartition


class _Face(Protocol):
    @property
    def _core(self) -> PollingConsumer: ...


class ConsumerFace:
    """The properties and methods that return immediately. Any thread may call them."""

    @property
    def assignment(self: _Face) -> frozenset[TopicPartition]:
        """The partitions currently assigned to this consumer."""
        return self._core.assignment

    @property
    def subscription(self: _Face) -> frozenset[str]:
        """The topics to which this consumer is subscribed; empty after `assign`."""
        return self._core.subscription

    @property
    def paused(self: _Face) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._core.paused

    # These methods only read the engine's state, so any thread may call them directly.
    group_metadata = direct(PollingConsumer.group_metadata)
    lag = direct(PollingConsumer.lag)
    metrics = direct(PollingConsumer.metrics)


class ReactorConsumerFace(ConsumerFace):
    """Consumer methods that return immediately in faces that run in the engine's thread."""

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
