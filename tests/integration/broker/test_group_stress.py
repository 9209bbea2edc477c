"""Thirty real consumers that join and leave one group at random for some seconds.

Two invariants must hold: in one generation a partition has one owner, and the group's committed
offsets never go back. The consumers are kafka-python's, which expose a member's generation.
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
from tests.helpers.eventually import eventually
from tests.helpers.programs.confluent import create_topic, produce
from tests.helpers.programs.confluent_client import ConfluentClient

kafka = pytest.importorskip("kafka")
kafka_errors = pytest.importorskip("kafka.errors")

MEMBERS = 30
GENERATIONS_MIN = 5
PARTITIONS = 12
MESSAGES_EACH = 3000
SECONDS = 6.0
SECONDS_LONG = 60.0
PAUSE_S = 0.05


class Log:
    """Events of the members of a group. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        self.owned_by: dict[str, frozenset[int]] = {}
        self.commits = 0
        self.failed_commits = 0

    def assigned(self, generation: int, member_id: str, partitions: frozenset[int]) -> None:
        """Record that a member received `partitions` in a generation."""
        with self._lock:
            for partition in partitions:
                self.owners[generation, partition].add(member_id)
            self.owned_by[member_id] = partitions

    def left(self, member_id: str) -> None:
        """Record that a member has left."""
        with self._lock:
            self.owned_by.pop(member_id, None)

    def committed(self, success: bool) -> None:
        """Count a commit that succeeded or failed."""
        with self._lock:
            self.commits += success
            self.failed_commits += not success

    def generation(self) -> int:
        """Return the last generation in which a member received partitions."""
        with self._lock:
            return max((generation for generation, _ in self.owners), default=0)

    def generations_count(self) -> int:
        """Return the number of generations in which a member has owned a partition."""
        with self._lock:
            return len({generation for generation, _ in self.owners})

    def twice_owned(self) -> dict[tuple[int, int], set[str]]:
        """Return each (generation, partition) that has more than one owner."""
        with self._lock:
            return {where: owners for where, owners in self.owners.items() if len(owners) > 1}

    def current_owners(self) -> list[int]:
        """Return the partitions of all present members, sorted, with duplicates."""
        with self._lock:
            return sorted(p for partitions in self.owned_by.values() for p in partitions)


class StressMember(kafka.ConsumerRebalanceListener):
    """A member that reads and commits in small steps until it has to leave."""

    def __init__(self, bootstrap_servers: str, topic: str, log: Log) -> None:
        self._server, self._topic, self._log = bootstrap_servers, topic, log
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._consumer: Any = None
        self.failure: BaseException | None = None
        self._thread.start()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Forget the positions, as Java's client does.

        kafka-python 3.0.12 keeps them until the next assignment, even across a generation in which
        another member owned the partitions and read on; it would then commit the old positions.
        """
        self._consumer._subscription.assign_from_subscribed([])

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Record the assignment and its generation in the log."""
        joined = self._consumer.group_metadata()
        partitions = frozenset(each.partition for each in assigned)
        self._log.assigned(joined.generation_id, joined.member_id, partitions)

    def leave(self) -> None:
        """Request that the member leaves."""
        self._leave.set()

    def wait(self) -> None:
        """Wait until the member has left. Raises the error that ended it, if any."""
        self._leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the member did not leave within 60 s"
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
        # Fetch the metadata before subscribing: see test_kafka_python.py.
        assert self._consumer.partitions_for_topic(self._topic)
        self._consumer.subscribe([self._topic], listener=self)

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except (kafka_errors.CommitFailedError, kafka_errors.RebalanceInProgressError):
            self._log.committed(False)  # Expected if a rebalance has begun.
        else:
            self._log.committed(True)


class Observer:
    """A thread that polls the group's offsets; `steps_back` lists the decreases that it saw."""

    def __init__(self, client: ConfluentClient, topic: str) -> None:
        self.steps_back: list[str] = []
        self.offsets: dict[int, int] = {}
        self._client, self._topic = client, topic
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop polling. Raises the error that ended the thread, if any."""
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
                    f"partition {partition}: offset {before} became {now.get(partition)}"
                    for partition, before in self.offsets.items()
                    if now.get(partition, -1) < before
                )
                self.offsets = now
        except BaseException as error:
            self._failure = error


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ConfluentClient]:
    """The client that fetches the committed offsets."""
    client = ConfluentClient(broker.bootstrap_servers)
    yield client
    client.close()


@pytest.mark.parametrize(
    ("seed", "seconds"), [(4, SECONDS), pytest.param(5, SECONDS_LONG, marks=pytest.mark.long)]
)
def test_no_partition_has_two_owners_while_thirty_members_join_and_leave(
    broker: BrokerProcess, client: ConfluentClient, topic: str, seed: int, seconds: float
) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic, PARTITIONS)
    each = [{"value": b"x", "partition": p} for p in range(PARTITIONS)]
    assert set(produce(server, topic, each * MESSAGES_EACH)) == {None}
    log, observer = Log(), Observer(client, topic)
    members = _join_and_leave(server, topic, log, random.Random(seed), seconds)
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
    for member in members:
        member.leave()
    for member in members:
        member.wait()
    observer.stop()
    assert log.twice_owned() == {}
    assert observer.steps_back == []
    # The group made progress during the rebalances.
    assert log.commits >= PARTITIONS
    assert log.generations_count() >= GENERATIONS_MIN


def _join_and_leave(
    server: str, topic: str, log: Log, chance: random.Random, seconds: float
) -> list[StressMember]:
    """Start thirty members; let members leave and join for `seconds`. Return those present.

    On a slow machine this goes on until the group has had enough generations.
    """
    present = [StressMember(server, topic, log) for _ in range(MEMBERS)]
    leaving: list[StressMember] = []
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < deadline or log.generations_count() < GENERATIONS_MIN:
        before = log.generation()
        for _ in range(chance.randrange(1, 4)):
            pause.wait(chance.uniform(0, 0.3))
            if len(present) > MEMBERS // 2 and chance.random() < len(present) / MEMBERS - 0.3:
                leaving.append(present.pop(chance.randrange(len(present))))
                leaving[-1].leave()
            else:
                present.append(StressMember(server, topic, log))
        # Wait for the group: faster changes would never complete a generation.
        eventually(lambda before=before: log.generation() > before, "a new generation")
    for member in leaving:
        member.wait()
    return present
