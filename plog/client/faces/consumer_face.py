"""What the consumers of the faces have in common; each adds what waits, in a manner of its own."""

from __future__ import annotations

from typing import Protocol

from plog.client.faces.method_adapters import here
from plog.client.faces.polling_consumer import PollingConsumer
from plog.types import TopicPartition


class _Face(Protocol):
    @property
    def _core(self) -> PollingConsumer: ...


class ConsumerFace:
    """What can be asked in any thread and is known at once."""

    @property
    def assignment(self: _Face) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._core.assignment

    @property
    def subscription(self: _Face) -> frozenset[str]:
        """The topics that are wanted; empty after `assign`."""
        return self._core.subscription

    @property
    def paused(self: _Face) -> frozenset[TopicPartition]:
        """What is paused."""
        return self._core.paused

    group_metadata = here(PollingConsumer.group_metadata)
    lag = here(PollingConsumer.lag)
    metrics = here(PollingConsumer.metrics)


class ReactorConsumerFace(ConsumerFace):
    """And what is done at once, for faces that live in the engine's thread."""

    subscribe = here(PollingConsumer.subscribe)
    assign = here(PollingConsumer.assign)
    seek = here(PollingConsumer.seek)
    seek_to_beginning = here(PollingConsumer.seek_to_beginning)
    seek_to_end = here(PollingConsumer.seek_to_end)
    seek_to_time = here(PollingConsumer.seek_to_time)
    pause = here(PollingConsumer.pause)
    resume = here(PollingConsumer.resume)
    commit_async = here(PollingConsumer.commit_async)
    wakeup = here(PollingConsumer.wake_up)
