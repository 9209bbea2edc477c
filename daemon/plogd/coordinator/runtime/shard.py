"""What a coordinator's state has to offer to the runtime, and how its records look in a log.

A *shard* is the state that belongs to one partition of a coordinator's topic. The runtime
(coordinator_runtime.py) makes one for each partition this broker leads, fills it by replaying the
log, and replays into it what is written later; the rest of a shard is its own business.

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
    """The state of one partition. It changes by `replay`, and by what needs no memory."""

    def replay(self, record: CoordinatorRecord, *, offset: int, producer_id: int) -> None:
        """The record at `offset` of the log; `producer_id` is -1 outside of a transaction."""
        ...

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of `producer_id` has ended."""
        ...

    def on_loaded(self) -> None:
        """All of the log is replayed: time goes on, requests come."""
        ...

    def on_unloaded(self, error: KafkaError) -> None:
        """This broker does not look after the shard any more: whoever waits gets `error`."""
        ...


S = TypeVar("S", bound=Shard)


class RecordCodec(Protocol):
    """Records to the keys and values of a log and back; a module may be one."""

    def encode_key(self, key: Message) -> bytes:
        """The key of a log record."""
        ...

    def encode_value(self, value: Message | None) -> bytes | None:
        """The value of a log record; None for a tombstone."""
        ...

    def decode(
        self, key: Buffer | None, value: Buffer | None
    ) -> tuple[Message, Message | None] | None:
        """Key and value; None for a record of a kind we do not know. Raises WireError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardKind(Generic[S]):
    """One kind of coordinator: its topic, its records, its state."""

    topic: str
    codec: RecordCodec
    make_shard: Callable[[ShardTimers], S]
