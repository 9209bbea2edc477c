"""A minimal coordinator over a broker on simulated ports.

Its state is the last value of each key, and the notifications that it received; its records are
committed offsets. The topic is an ordinary one, so that nothing here depends on groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from plog.errors import KafkaError
from plog.wire.internal import group_records
from plog.wire.internal.group_records import OffsetCommitKey, OffsetCommitValue
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from plogd.coordinator.runtime.shard import ShardKind
from plogd.coordinator.runtime.shard_runtime import RuntimeContext, ShardRuntime
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.ports import Clock, Later
from tests.helpers.sim.sim_broker import SimBroker, create_topic

TOPIC = "state"


def record(name: str, number: int, metadata: str = "") -> CoordinatorRecord:
    """Return a record that sets `name` to `number`."""
    value = OffsetCommitValue(offset=number, metadata=metadata)
    return CoordinatorRecord(OffsetCommitKey(group=name, topic="t"), value)


class NumberShard:
    """Numbers by name, and the notifications of the runtime."""

    def __init__(self, timers: ShardTimers) -> None:
        self.timers = timers
        self.numbers: dict[str, int] = {}
        self.notifications: list[Any] = []
        self.fails_at: str | None = None

    def replay(self, record: CoordinatorRecord, *, offset: int, producer_id: int) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        if record.key.group == self.fails_at:
            raise ZeroDivisionError
        if record.value is None:
            self.numbers.pop(record.key.group, None)
        else:
            assert isinstance(record.value, OffsetCommitValue)
            self.numbers[record.key.group] = record.value.offset

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        self.notifications.append(("marker", producer_id, committed))

    def on_loaded(self) -> None:
        self.notifications.append("loaded")

    def on_unloaded(self, error: KafkaError) -> None:
        self.notifications.append(error)

    def set(self, name: str, number: int) -> Result[str]:
        """Set a number; return the previous one."""
        return Result(records=[record(name, number)], response=str(self.numbers.get(name)))


class CoordinatorSite:
    """A broker with one such coordinator on a topic of one partition."""

    def __init__(
        self, broker: SimBroker | None = None, *, clock: Clock | None = None, **settings: Any
    ) -> None:
        self.made: list[NumberShard] = []
        self.broker = broker or SimBroker(**settings).start()
        if self.broker.log(TOPIC) is None:
            create_topic(self.broker, TOPIC, cleanup_policy="compact")
        inner = self.broker.broker
        self.context = RuntimeContext(
            replica_manager=inner.replica_manager,
            config=lambda: inner.config,
            ports=replace(inner.ports, clock=clock or inner.clock),
            on_bug=inner.report_bug,
        )
        kind = ShardKind(topic=TOPIC, codec=group_records, make_shard=self._make_shard)
        self.runtime = CoordinatorRuntime(kind, self.context)

    def _make_shard(self, timers: ShardTimers) -> NumberShard:
        self.made.append(NumberShard(timers))
        return self.made[-1]

    def lead(self) -> CoordinatorSite:
        """Become the leader of the partition, which starts loading."""
        topic = self.broker.broker.cache.topic(TOPIC)
        assert topic is not None
        self.runtime.topic_started(topic)
        return self

    def start(self) -> CoordinatorSite:
        """Become the leader, and finish loading."""
        self.lead()
        self.broker.settle()
        return self

    @property
    def shard(self) -> NumberShard:
        """The current state."""
        return self.made[-1]

    @property
    def runtime_of_shard(self) -> ShardRuntime[NumberShard]:
        """The runtime of the shard."""
        return self.runtime.shards[0]

    def begin(self, operation: Callable[[NumberShard], Result[Any]], **options: bool) -> Later[Any]:
        """Start a write."""
        with self.broker.ports.turn:
            return self.runtime.write(0, operation, **options)

    def set(self, name: str, number: int) -> Later[Any]:
        """Start a write of one number."""
        return self.begin(lambda shard: shard.set(name, number))

    def numbers(self) -> Later[dict[str, int]]:
        """Start a read of all numbers."""
        return self.runtime.read(0, lambda shard: dict(shard.numbers))
