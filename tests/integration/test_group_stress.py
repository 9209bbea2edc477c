"""Thirty real consumers that join one group and leave it at random, for some seconds.

Two things have to hold, whatever happens: in one generation a partition has one owner, and what the
group has committed never goes back. kafka-python, as it tells a member's generation.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.confluent import create_topic, produce
from tests.helpers.confluent_client import ConfluentClient
from tests.helpers.eventually import eventually

kafka = pytest.importorskip("kafka")
kafka_errors = pytest.importorskip("kafka.errors")

MEMBERS = 30
PARTITIONS = 12
MESSAGES_EACH = 3000
SECONDS = 6.0
SECONDS_LONG = 60.0
PAUSE_S = 0.05


class Log:
    """What the members of a group say; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        self.owned_by: dict[str, frozenset[int]] = {}
        self.commits = 0
        self.failed_commits = 0

    def assigned(self, generation: int, member_id: str, partitions: frozenset[int]) -> None:
        """A member has got these partitions in a generation."""
        with self._lock:
            for partition in partitions:
                self.owners[generation, partition].add(member_id)
            self.owned_by[member_id] = partitions

    def left(self, member_id: str) -> None:
        """A member has gone."""
        with self._lock:
            self.owned_by.pop(member_id, None)

    def committed(self, success: bool) -> None:
        """A commit was answered."""
        with self._lock:
            self.commits += success
            self.failed_commits += not success

    def generation(self) -> int:
        """The last one in which somebody was given something."""
        with self._lock:
            return max((generation for generation, _ in self.owners), default=0)

    def twice_owned(self) -> dict[tuple[int, int], set[str]]:
        """(generation, partition) with more than one owner."""
        with self._lock:
            return {where: owners for where, owners in self.owners.items() if len(owners) > 1}

    def current_owners(self) -> list[int]:
        """The partitions of all members that are there, sorted, with repetitions."""
        with self._lock:
            return sorted(p for partitions in self.owned_by.values() for p in partitions)


class StressMember(kafka.ConsumerRebalanceListener):
    """Reads a little, commits it, and reads on, until it is told to leave."""

    def __init__(self, bootstrap_servers: str, topic: str, log: Log) -> None:
        self._server, self._topic, self._log = bootstrap_servers, topic, log
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._consumer: Any = None
        self.failure: BaseException | None = None
        self._thread.start()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Forget the positions, as Java's client does.

        kafka-python 3.0.12 keeps them until the next assignment, even over a generation in which it
        got none and somebody else read on; then it would commit its old ones.
        """
        self._consumer._subscription.assign_from_subscribed([])

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Tell the log, with the generation."""
        joined = self._consumer.group_metadata()
        partitions = frozenset(each.partition for each in assigned)
        self._log.assigned(joined.generation_id, joined.member_id, partitions)

    def leave(self) -> None:
        """Begin to leave."""
        self._leave.set()

    def wait(self) -> None:
        """Until it has left. Raises what went wrong."""
        self._leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the member does not end"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._open()
            while not self._leave.wait(PAUSE_S):
                if self._consumer.poll(timeout_ms=200):
                    self._commit()
            member_id = self._consumer.group_metadata().member_id
            self._consumer.close()
            self._log.left(member_id)
        except BaseException as error:
            self.failure = error

    def _open(self) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._server,
            group_id=self._topic,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
            max_poll_records=20,
        )
        # Before it subscribes: see test_kafka_python.py.
        assert self._consumer.partitions_for_topic(self._topic)
        self._consumer.subscribe([self._topic], listener=self)

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except (kafka_errors.CommitFailedError, kafka_errors.RebalanceInProgressError):
            self._log.committed(False)  # What a rebalance does to a late member.
        else:
            self._log.committed(True)


class Observer:
    """Asks for the group's offsets over and over; `steps_back` has those that became smaller."""

    def __init__(self, client: ConfluentClient, topic: str) -> None:
        self.steps_back: list[str] = []
        self.offsets: dict[int, int] = {}
        self._client, self._topic = client, topic
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End. Raises what went wrong."""
        self._stop.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                places = self._client.committed(self._topic, self._topic)
                now = {partition: place.offset for partition, place in places.items()}
                self.steps_back.extend(
                    f"partition {partition}: {before} became {now.get(partition)}"
                    for partition, before in self.offsets.items()
                    if now.get(partition, -1) < before
                )
                self.offsets = now
        except BaseException as error:
            self._failure = error


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ConfluentClient]:
    """Who asks for the committed offsets."""
    client = ConfluentClient(broker.bootstrap_servers)
    yield client
    client.close()


@pytest.mark.parametrize(
    ("seed", "seconds"), [(4, SECONDS), pytest.param(5, SECONDS_LONG, marks=pytest.mark.long)]
)
def test_thirty_members_come_and_go_and_no_partition_has_two_owners(
    broker: BrokerProcess, client: ConfluentClient, topic: str, seed: int, seconds: float
) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic, PARTITIONS)
    each = [{"value": b"x", "partition": p} for p in range(PARTITIONS)]
    assert set(produce(server, topic, each * MESSAGES_EACH)) == {None}
    log, observer = Log(), Observer(client, topic)
    staying = _come_and_go(server, topic, log, random.Random(seed), seconds)
    everything = list(range(PARTITIONS))
    eventually(lambda: log.current_owners() == everything, "one owner for each partition")
    before = dict(observer.offsets)
    eventually(
        lambda: (
            len(observer.offsets) == PARTITIONS
            and all(
                offset > before.get(p, 0) or offset == MESSAGES_EACH
                for p, offset in observer.offsets.items()
            )
        ),
        "progress in each partition",
    )
    for member in staying:
        member.leave()
    for member in staying:
        member.wait()
    observer.stop()
    assert log.twice_owned() == {}
    assert observer.steps_back == []
    # It has been shaken, and has got on all the same; how often depends on the machine.
    assert log.commits >= PARTITIONS
    assert len({generation for generation, _ in log.owners}) >= 5


def _come_and_go(
    server: str, topic: str, log: Log, chance: random.Random, seconds: float
) -> list[StressMember]:
    """Thirty members; then some leave and others come until time is up. Those still there."""
    there = [StressMember(server, topic, log) for _ in range(MEMBERS)]
    gone: list[StressMember] = []
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < deadline:
        before = log.generation()
        for _ in range(chance.randrange(1, 4)):
            pause.wait(chance.uniform(0, 0.3))
            if len(there) > MEMBERS // 2 and chance.random() < len(there) / MEMBERS - 0.3:
                gone.append(there.pop(chance.randrange(len(there))))
                gone[-1].leave()
            else:
                there.append(StressMember(server, topic, log))
        # Faster than the group can follow, there would be no generation to look at.
        eventually(lambda before=before: log.generation() > before, "new generation")
    for member in gone:
        member.wait()
    return there
