"""The interface between coordinator state and the runtime, and the codec of its log records.

A *shard* is the state that belongs to one partition of a coordinator's topic. The runtime
(coordinator_runtime.py) creates a shard for each partition that this broker leads, loads the shard
by replaying the log, and replays later records into it.

Source: Kafka 4.0 CoordinatorShard, CoordinatorRecordSerde.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from plog.errors import KafkaError
from plog.wire.schema import Buffer, Message
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord
from plogd.coordinator.runtime.shard_timers import ShardTimers


class Shard(Protocol):
    """The state of one partition. Persistent state changes only in the `replay` methods."""

    def replay(self, record: CoordinatorRecord, *, offset: int, producer_id: int) -> None:
        """Apply the record at `offset`; `producer_id` is -1 outside of a transaction."""
        ...

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        """End the transaction of `producer_id`."""
        ...

    def on_loaded(self) -> None:
        """Start timers; the log has been replayed, and requests follow."""
        ...

    def on_unloaded(self, error: KafkaError) -> None:
        """Fail pending requests with `error`, because the shard is unloaded."""
        ...


S = TypeVar("S", bound=Shard)


class RecordCodec(Protocol):
    """Encodes and decodes the keys and values of log records; a module can be a codec."""

    def encode_key(self, key: Message) -> bytes:
        """Return the key of a log record."""
        ...

    def encode_value(self, value: Message | None) -> bytes | None:
        """Return the value of a log record; None for a tombstone."""
        ...

    def decode(
        self, key: Buffer | None, value: Buffer | None
    ) -> tuple[Message, Message | None] | None:
        """Return key and value, or None for an unknown record type. Raises WireError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardKind(Generic[S]):
    """One kind of coordinator: its topic, the codec of its records, and its state."""

    topic: str
    codec: RecordCodec
    make_shard: Callable[[ShardTimers], S]
