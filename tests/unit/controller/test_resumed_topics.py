"""ResumedTopics: what an interrupted operation has written is served after the next election."""

from __future__ import annotations

from plog.errors import KafkaStorageError
from plog.zookeeper.operations import Delete
from plogd.controller.partition_creation import NewPartitions
from plogd.controller.resumed_topics import ResumedTopics
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import MetadataCache, TopicState
from plogd.ports import Later
from plogd.testing.mock_zookeeper import Fault
from tests.helpers.controller_site import ControllerSite, on_zookeeper, zookeeper_of
from tests.helpers.metadata_sites import fault_once


class Setup:
    """A controller whose broker shows the topics that it serves to clients."""

    def __init__(self) -> None:
        self.site: ControllerSite = on_zookeeper()
        self.cache = MetadataCache()
        self.started: list[str] = []
        self.bugs: list[Exception] = []
        self.error: Exception | None = None
        brokers = self.site.brokers
        start, stop = brokers.start_topic, brokers.stop_topic

        def start_topic(topic: TopicState) -> Later[None]:
            if brokers.error is None:
                self.cache.update(topic)
            return start(topic)

        def stop_topic(topic: TopicState) -> Later[None]:
            if self.cache.topic(topic.name) is not None:
                self.cache.remove(topic.name)
            return stop(topic)

        brokers.start_topic = start_topic  # type: ignore[method-assign]
        brokers.stop_topic = stop_topic  # type: ignore[method-assign]
        ResumedTopics(
            self.site.controller,
            brokers,
            self.cache,
            start=self.start,
            fair_queue=FairQueue(self.site.site.ports.timers),
            report=self.site.site.ports.report,
            on_bug=lambda where, error: self.bugs.append(error),
        ).follow()

    def start(self, topic: TopicState) -> Later[None]:
        self.started.append(topic.name)
        return self.site.brokers.start_topic(topic)

    def interrupt(self, fault: Fault = Fault.LOSE_AFTER) -> None:
        """Lose the connection with the next write."""
        fault_once(zookeeper_of(self.site).zookeeper, fault)

    def elect_again(self) -> None:
        zookeeper_of(self.site).zookeeper.write(Delete(path="/controller"))
        self.run()

    def run(self) -> None:
        zookeeper_of(self.site).run_for(1000)

    def partitions(self) -> dict[str, int]:
        return {topic.name: len(topic.partitions) for topic in self.cache.topics()}


def test_topic_whose_creation_was_interrupted_is_started() -> None:
    setup = Setup()
    setup.interrupt()
    creation = setup.site.create("t", 100)
    setup.run()
    assert creation.done
    assert setup.partitions() == {"t": 100}
    assert setup.started == ["t"]


def test_partitions_whose_creation_was_interrupted_are_started() -> None:
    setup = Setup()
    setup.site.created("t", 2)
    setup.interrupt()
    setup.site.controller.create_partitions(NewPartitions(topic="t", count=90))
    setup.run()
    assert setup.partitions() == {"t": 90}
    assert setup.started == ["t"]


def test_topics_that_are_served_are_not_started_again() -> None:
    setup = Setup()
    setup.site.created("t", 2)
    setup.elect_again()
    assert len(setup.site.brokers.calls) == 1
    assert setup.started == []


def test_topic_that_is_deleted_meanwhile_is_not_started() -> None:
    setup = Setup()
    held: Later[None] = Later()
    setup.site.created("a", 1)
    setup.interrupt()
    setup.site.create("t", 100)
    # The operation that is in progress has the name when the topic would be started.
    setup.site.controller.on_elected = lambda topics: None
    setup.run()
    blocked = setup.site.controller.run_exclusively("t", lambda: held)
    topic = setup.site.controller.topic("t")
    assert topic is not None
    deletion = setup.site.controller.delete_topic("t", topic.topic_id)
    resumed = ResumedTopics(
        setup.site.controller,
        setup.site.brokers,
        setup.cache,
        start=setup.start,
        fair_queue=FairQueue(setup.site.site.ports.timers),
        report=setup.site.site.ports.report,
        on_bug=lambda where, error: setup.bugs.append(error),
    )
    resumed.follow()
    held.succeed(None)
    setup.site.settle(blocked)
    setup.site.settle(deletion)
    setup.run()
    assert setup.started == []
    assert setup.partitions() == {"a": 1}


def test_topic_that_cannot_be_started_is_reported_and_others_are_started() -> None:
    setup = Setup()
    setup.site.created("a", 1)
    setup.cache.remove("a")
    setup.site.created("b", 1)
    setup.cache.remove("b")
    setup.site.brokers.error = KafkaStorageError("no room")
    setup.elect_again()
    assert setup.site.site.ports.reports[-2:] == [
        "topic a is offline: no room",
        "topic b is offline: no room",
    ]
    setup.site.brokers.error = None
    setup.elect_again()
    assert setup.partitions() == {"a": 1, "b": 1}
    assert setup.bugs == []
