"""Controller: creation, expansion and deletion of topics, with failures at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.errors import (
    InvalidPartitions,
    InvalidTopicException,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from plogd.controller.controller import Controller
from plogd.controller.partition_creation import NewPartitions
from plogd.controller.topic_creation import Defaults, NewTopic
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import TopicState
from plogd.metadata.image import MetadataImage
from plogd.metadata.store import Change, Conflict, Key, Outcome, TopicValue, Watcher, Written
from plogd.ports import Later, failed, ready
from tests.helpers.sim.sim_ports import SimPorts, outcome


class MemoryStore:
    """A minimal metadata store; each write waits for `finish`."""

    max_atomic_changes = 10_000
    keeps_deletion_marks = False

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.waiting: list[tuple[list[Change], Later[list[Outcome]]]] = []
        self.watchers: list[Watcher] = []
        self._offset = 0

    def get(self, key: Key) -> tuple[Any, int]:
        return self.image.get(key)

    def problem(self, key: Key) -> None:
        pass

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        self.watchers.append(watcher)

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        return self.image.load(prefix)

    def campaign(self) -> Later[int]:
        return ready(3)

    def resigned(self, callback: Callable[[], None]) -> None:
        pass

    def write(self, changes: list[Change], term: int | None = None) -> Later[list[Outcome]]:
        assert term == 3
        later: Later[list[Outcome]] = Later()
        self.waiting.append((changes, later))
        return later

    write_atomic = write

    def finish(self) -> None:
        """Perform the first waiting write atomically."""
        changes, later = self.waiting.pop(0)
        found = [self.image.get(change.key) for change in changes]
        if any(found[i][1] != change.expected for i, change in enumerate(changes)):
            later.succeed([Conflict(value=value, version=version) for value, version in found])
            return
        new = {str(c.key[1]): c.value for c in changes if isinstance(c.value, TopicValue)}
        for record in [r for c in changes for r in self.image.records_for(c, new)]:
            self.image.replay(record, self._offset)
            self._offset += 1
        later.succeed([Written(version=self.image.get(change.key)[1]) for change in changes])

    def fail(self, error: Exception) -> None:
        """Fail the first waiting write."""
        self.waiting.pop(0)[1].fail(error)


class FakeBrokers:
    """Records its calls; `refuse` makes starts and creations fail, `refuse_stop` stops."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.refuse = False
        self.refuse_stop = False
        self.error: Exception = KafkaStorageError("no room")

    def start_topic(self, topic: TopicState) -> Later[None]:
        self.told.append(f"start {topic.name}")
        later: Later[None] = Later()
        if self.refuse:
            later.fail(self.error)
        else:
            later.succeed(None)
        return later

    def stop_topic(self, topic: TopicState) -> Later[None]:
        self.told.append(f"stop {topic.name}")
        return failed(self.error) if self.refuse_stop else ready(None)

    def create_logs(self, topic: TopicState) -> Later[None]:
        self.told.append(f"create logs of {topic.name} with {len(topic.partitions)}")
        return failed(self.error) if self.refuse else ready(None)

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        self.told.append(f"remove logs of {topic.name}")
        return ready(None)


class Setup:
    """A controller with a store and brokers."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.brokers = FakeBrokers()
        ports = SimPorts()
        self.reports = ports.reports
        self.controller = Controller(
            store=self.store,  # type: ignore[arg-type]  # it has no brokers
            brokers=self.brokers,
            defaults=lambda: Defaults(num_partitions=2, replication_factor=1, brokers=(1,)),
            random=ports.random,
            fair_queue=FairQueue(ports.timers),
            report=ports.report,
        )
        self.topics = outcome(self.controller.load())

    def create(self, name: str, **fields: Any) -> Later[TopicState]:
        return self.controller.create_topic(NewTopic(name=name, **fields))

    def created(self, name: str, **fields: Any) -> TopicState:
        creation = self.create(name, **fields)
        self.store.finish()
        return outcome(creation)


def test_topic_is_written_then_started_then_reported() -> None:
    setup = Setup()
    creation = setup.create("t", config={"retention.ms": "5"})
    assert (creation.done, setup.brokers.told) == (False, [])
    setup.store.finish()
    topic = outcome(creation)
    assert setup.brokers.told == ["start t"]
    assert [state.leader for state in topic.partitions] == [1, 1]
    assert topic.config == {"retention.ms": "5"}
    assert setup.store.load(("topic",))["topic", "t"][0].topic_id == topic.topic_id
    assert setup.reports == ["created topic t with 2 partitions"]


def test_topic_ids_are_random_uuids() -> None:
    setup = Setup()
    ids = {setup.created(f"t{n}").topic_id for n in range(20)}
    assert len(ids) == 20
    assert all(topic_id[6] >> 4 == 4 and topic_id[8] >> 6 == 2 for topic_id in ids)


def test_second_creation_of_a_name_waits_and_finds_the_topic() -> None:
    setup = Setup()
    first, second = setup.create("t"), setup.create("t")
    setup.store.finish()
    assert outcome(first).name == "t"
    with pytest.raises(TopicAlreadyExists):
        outcome(second)
    assert setup.store.waiting == []


def test_thousand_operations_may_wait_for_the_same_topic() -> None:
    """All consumers of a new broker wait for the offsets topic."""
    setup = Setup()
    first, *others = [setup.create("t") for _ in range(1000)]
    setup.store.finish()
    assert outcome(first).name == "t"
    for creation in others:
        with pytest.raises(TopicAlreadyExists):
            outcome(creation)


def test_operations_on_colliding_names_are_sequential() -> None:
    setup = Setup()
    first, second = setup.create("a.b"), setup.create("a_b")
    setup.store.finish()
    outcome(first)
    with pytest.raises(InvalidTopicException):
        outcome(second)


def test_different_names_are_created_concurrently() -> None:
    setup = Setup()
    setup.create("a")
    setup.create("b")
    assert len(setup.store.waiting) == 2


def test_disconnecting_client_does_not_stop_the_creation() -> None:
    setup = Setup()
    setup.create("t").cancel()
    setup.store.finish()
    assert setup.brokers.told == ["start t"]


def test_creation_fails_when_the_store_already_has_the_topic() -> None:
    setup = Setup()
    other = Setup(setup.store)
    creation = setup.create("t")
    other.create("t")
    setup.store.finish()
    setup.store.finish()
    assert outcome(creation).name == "t"
    assert other.brokers.told == []


def test_failed_write_fails_the_creation_and_frees_the_name() -> None:
    setup = Setup()
    creation = setup.create("t")
    setup.store.fail(KafkaStorageError("disk failed"))
    with pytest.raises(KafkaStorageError):
        outcome(creation)
    assert setup.created("t").name == "t"


@pytest.mark.parametrize("error", [KafkaStorageError("no room"), MemoryError()])
def test_creation_is_rolled_back_when_its_logs_cannot_be_created(error: Exception) -> None:
    setup = Setup()
    setup.brokers.refuse = True
    setup.brokers.error = error
    creation = setup.create("t")
    setup.store.finish()
    assert setup.brokers.told == ["start t", "stop t"]
    setup.store.finish()
    with pytest.raises(type(error)):
        outcome(creation)
    assert setup.store.load(("topic",)) == {}
    setup.brokers.refuse = False
    assert setup.created("t").name == "t"


def test_incomplete_topic_is_removed_by_the_next_creation_of_its_name() -> None:
    """A full disk may prevent both the logs and the removal of the topic."""
    setup = Setup()
    setup.brokers.refuse = True
    creation = setup.create("t")
    setup.store.finish()
    setup.store.fail(KafkaStorageError("full"))
    with pytest.raises(KafkaStorageError):
        outcome(creation)
    setup.brokers.refuse = False
    again = setup.create("t")
    for _ in range(2):
        setup.store.finish()
    topic = outcome(again)
    assert setup.store.load(("topic",))["topic", "t"][0].topic_id == topic.topic_id
    with pytest.raises(TopicAlreadyExists):
        setup.controller.plan(NewTopic(name="t"))


def test_incomplete_topic_is_stopped_again_when_its_rollback_failed() -> None:
    """A log that is still open would become a log of the next topic of this name."""
    setup = Setup()
    setup.brokers.refuse = setup.brokers.refuse_stop = True
    creation = setup.create("t")
    setup.store.finish()
    with pytest.raises(KafkaStorageError):
        outcome(creation)
    setup.brokers.refuse = setup.brokers.refuse_stop = False
    again = setup.create("t")
    for _ in range(2):
        setup.store.finish()
    assert outcome(again).name == "t"
    assert setup.brokers.told == ["start t", "stop t", "stop t", "start t"]


def test_planning_changes_nothing() -> None:
    setup = Setup()
    assert len(setup.controller.plan(NewTopic(name="t")).assignments) == 2
    assert setup.store.waiting == []


def test_report_uses_the_singular_for_one_partition() -> None:
    setup = Setup()
    setup.created("t", num_partitions=1)
    assert setup.reports == ["created topic t with 1 partition"]


class TestCreatePartitions:
    """Logs are created before the partitions are written, and served afterwards."""

    def more(self, setup: Setup, count: int = 3) -> Later[TopicState]:
        return setup.controller.create_partitions(NewPartitions(topic="t", count=count))

    def test_logs_are_created_before_partitions_are_written_and_served(self) -> None:
        setup = Setup()
        old = setup.created("t", config={"retention.ms": "5"})
        creation = self.more(setup)
        assert setup.brokers.told == ["start t", "create logs of t with 3"]
        setup.store.finish()
        topic = outcome(creation)
        assert setup.brokers.told[2:] == ["start t"]
        assert topic.partitions[:2] == old.partitions
        assert (topic.topic_id, topic.config) == (old.topic_id, old.config)
        assert setup.reports[1:] == ["expanded topic t to 3 partitions"]
        value, _ = setup.store.load(("topic",))["topic", "t"]
        assert value.assignments == {0: (1,), 1: (1,), 2: (1,)}

    def test_new_controller_loads_added_partitions(self) -> None:
        setup = Setup()
        setup.created("t")
        creation = self.more(setup)
        setup.store.finish()
        again = Setup(setup.store)
        assert again.topics == [outcome(creation)]
        creation = self.more(again, 4)
        again.store.finish()
        assert len(outcome(creation).partitions) == 4

    @pytest.mark.parametrize("error", [KafkaStorageError("no room"), MemoryError()])
    def test_topic_is_unchanged_when_its_logs_cannot_be_created(self, error: Exception) -> None:
        setup = Setup()
        setup.created("t")
        setup.brokers.refuse = True
        setup.brokers.error = error
        with pytest.raises(type(error)):
            outcome(self.more(setup))
        assert setup.brokers.told[1:] == ["create logs of t with 3", "remove logs of t"]
        assert setup.store.waiting == []
        setup.brokers.refuse = False
        creation = self.more(setup)
        setup.store.finish()
        assert len(outcome(creation).partitions) == 3

    def test_topic_is_unchanged_when_the_write_fails(self) -> None:
        setup = Setup()
        setup.created("t")
        creation = self.more(setup)
        setup.store.fail(KafkaStorageError("disk failed"))
        with pytest.raises(KafkaStorageError):
            outcome(creation)
        assert setup.brokers.told[1:] == ["create logs of t with 3", "remove logs of t"]
        assert len(setup.controller.plan_partitions(NewPartitions(topic="t", count=3))) == 1

    def test_concurrent_expansions_are_sequential(self) -> None:
        setup = Setup()
        setup.created("t")
        first, second = self.more(setup, 4), self.more(setup, 3)
        assert len(setup.store.waiting) == 1
        setup.store.finish()
        assert len(outcome(first).partitions) == 4
        with pytest.raises(InvalidPartitions, match="to 3 partitions: it already has 4"):
            outcome(second)

    def test_topic_deleted_meanwhile_gets_no_partitions(self) -> None:
        setup = Setup()
        topic = setup.created("t")
        setup.controller.delete_topic("t", topic.topic_id)
        creation = self.more(setup)
        setup.store.finish()
        with pytest.raises(UnknownTopicOrPartition):
            outcome(creation)

    def test_incomplete_topic_gets_no_partitions(self) -> None:
        setup = Setup()
        setup.brokers.refuse = True
        setup.create("t")
        setup.store.finish()
        setup.store.fail(KafkaStorageError("full"))
        with pytest.raises(UnknownTopicOrPartition):
            setup.controller.plan_partitions(NewPartitions(topic="t", count=3))

    def test_disconnecting_client_does_not_stop_the_expansion(self) -> None:
        setup = Setup()
        setup.created("t")
        self.more(setup).cancel()
        setup.store.finish()
        assert setup.brokers.told[-1] == "start t"


class TestDeletion:
    """The removal is durable before logs are deleted."""

    def test_topic_is_removed_from_the_store_before_it_is_stopped(self) -> None:
        setup = Setup()
        topic = setup.created("t")
        deletion = setup.controller.delete_topic("t", topic.topic_id)
        assert setup.brokers.told == ["start t"]
        setup.store.finish()
        outcome(deletion)
        assert setup.brokers.told == ["start t", "stop t"]
        assert setup.store.load(("topic",)) == {}

    def test_topic_with_another_id_is_not_deleted(self) -> None:
        setup = Setup()
        setup.created("t")
        with pytest.raises(UnknownTopicOrPartition):
            outcome(setup.controller.delete_topic("t", b"x" * 16))

    def test_name_can_be_reused_once_the_logs_are_deleted(self) -> None:
        setup = Setup()
        topic = setup.created("t")
        setup.controller.delete_topic("t", topic.topic_id)
        creation = setup.create("t")
        assert len(setup.store.waiting) == 1
        setup.store.finish()
        setup.store.finish()
        assert outcome(creation).topic_id != topic.topic_id
        assert setup.brokers.told == ["start t", "stop t", "start t"]

    def test_second_deletion_finds_no_topic(self) -> None:
        setup = Setup()
        topic = setup.created("t")
        setup.controller.delete_topic("t", topic.topic_id)
        second = setup.controller.delete_topic("t", topic.topic_id)
        setup.store.finish()
        with pytest.raises(UnknownTopicOrPartition):
            outcome(second)

    def test_topic_remains_when_its_removal_cannot_be_written(self) -> None:
        setup = Setup()
        topic = setup.created("t")
        deletion = setup.controller.delete_topic("t", topic.topic_id)
        setup.store.fail(KafkaStorageError("disk failed"))
        with pytest.raises(KafkaStorageError):
            outcome(deletion)
        assert setup.brokers.told == ["start t"]
        with pytest.raises(TopicAlreadyExists):
            setup.controller.plan(NewTopic(name="t"))


def test_new_controller_loads_the_topics_of_the_store() -> None:
    setup = Setup()
    topic = setup.created("t", config={"retention.ms": "5"})
    again = Setup(setup.store)
    assert again.topics == [topic]
    with pytest.raises(TopicAlreadyExists):
        again.controller.plan(NewTopic(name="t"))
    deletion = again.controller.delete_topic("t", topic.topic_id)
    again.store.finish()
    outcome(deletion)


def test_exclusive_operation_waits_for_others_on_its_topic() -> None:
    setup = Setup()
    creation = setup.create("t.a")
    begun: list[str] = []

    def operation(name: str) -> Later[str]:
        begun.append(name)
        return ready(name)

    waiting = setup.controller.run_exclusively("t_a", lambda: operation("t_a"))
    other = setup.controller.run_exclusively("u", lambda: operation("u"))
    assert (outcome(other), begun) == ("u", ["u"])
    setup.store.finish()
    assert creation.done
    assert (outcome(waiting), begun) == ("t_a", ["u", "t_a"])
