"""A consumer as faces show it: waiting, waking, and records that were taken but not given out."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.assignors import Assignment
from plog.client.assignors.range_assignor import RangeAssignor
from plog.client.consumer.rebalance_listener import RebalanceListener
from plog.client.errors import (
    AuthenticationFailed,
    ClosedError,
    IllegalState,
    MaxPollIntervalExceeded,
    NoOffsetForPartition,
    WokenUp,
)
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Cancelled
from plog.client.settings import ConsumerSettings
from plog.errors import InvalidTopicException
from plog.types import TopicPartition
from tests.helpers.sim_broker import create_topic
from tests.helpers.sim_network import SimNetwork

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Site:
    """A broker with a topic of two partitions, and consumers."""

    def __init__(self) -> None:
        self.sim = SimNetwork()
        create_topic(self.sim.broker, "t", partitions=2)

    def produce(self, *values: bytes, partition: int = 0) -> None:
        self.sim.broker.produce("t", *values, partition=partition)
        self.sim.settle()

    def consumer(self, assignors: Any = None, **settings: Any) -> PollingConsumer:
        made = ConsumerSettings.from_options(
            bootstrap_servers=self.sim.bootstrap_servers,
            **{"auto_offset_reset": "earliest", **settings},
        )

        async def make() -> PollingConsumer:
            cluster = Cluster(self.sim, made)
            return PollingConsumer(cluster, self.sim, made, assignors=assignors)

        return self.sim.run(make())


@pytest.fixture
def site() -> Site:
    return Site()


def test_without_a_group_all_partitions_are_read(site: Site) -> None:
    site.produce(b"a")
    site.produce(b"b", partition=1)
    consumer = site.consumer()
    consumer.subscribe(["t"])
    seen = set()
    while len(seen) < 2:
        seen |= {record.value for record in site.sim.run(consumer.consume(10))}
    assert seen == {b"a", b"b"}
    assert consumer.assignment == {T0, TopicPartition("t", 1)}


def test_waits_until_there_is_something(site: Site) -> None:
    consumer = site.consumer()
    consumer.assign([T0])
    site.sim.call_later(5, lambda: site.produce(b"late"))
    [record] = site.sim.run(consumer.consume(10))
    assert record.value == b"late"
    assert site.sim.now_s() >= 5


def test_waits_no_longer_than_it_is_told(site: Site) -> None:
    consumer = site.consumer()
    consumer.assign([T0])
    before_s = site.sim.now_s()
    assert site.sim.run(consumer.consume(10, 2.0)) == []
    assert 2 <= site.sim.now_s() - before_s < 2.2
    assert site.sim.run(consumer.wait_for_data(0.5)) is False


@pytest.mark.parametrize("group", [None, "g"])
def test_a_topic_that_cannot_be_is_told(site: Site, group: str | None) -> None:
    consumer = site.consumer(group_id=group)
    consumer.subscribe(["no such name"])
    with pytest.raises(InvalidTopicException, match="no such name"):
        site.sim.run(consumer.consume(10))


def test_waking_it_ends_a_wait(site: Site) -> None:
    consumer = site.consumer()
    consumer.assign([T0])
    site.sim.call_later(1, consumer.wake_up)
    with pytest.raises(WokenUp):
        site.sim.run(consumer.consume(10))
    site.produce(b"x")
    assert len(site.sim.run(consumer.consume(10))) == 1


def test_a_wait_that_was_ended_does_not_count_as_polling(site: Site) -> None:
    consumer = site.consumer(group_id="g", max_poll_interval_ms=10_000, session_timeout_ms=6_000)
    consumer.subscribe(["t"])
    site.sim.call_later(1, consumer.wake_up)
    with pytest.raises(WokenUp):
        site.sim.run(consumer.consume(10))
    site.sim.run(consumer.consume(10, 5.0))
    waiting = Deferred.fromCoroutine(consumer.consume(10))
    waiting.addErrback(lambda failure: failure.trap(Cancelled))
    site.sim.advance(1_000)
    waiting.cancel()
    site.sim.advance(11_000)
    with pytest.raises(MaxPollIntervalExceeded):
        site.sim.run(consumer.consume(10, 1.0))


def test_closing_it_ends_a_wait(site: Site) -> None:
    site.produce(b"a", b"b", b"c")
    consumer = site.consumer()
    consumer.subscribe(["t"])
    site.sim.run(consumer.consume(10))
    outcomes: list[object] = []
    Deferred.fromCoroutine(consumer.consume(10)).addBoth(outcomes.append)
    assert not outcomes
    site.sim.run(consumer.close())
    [failure] = outcomes
    assert isinstance(failure, Failure)
    assert failure.check(ClosedError)


def test_after_the_end_nothing_is_given_out(site: Site) -> None:
    site.produce(b"a", b"b")
    consumer = site.consumer()
    consumer.subscribe(["t"])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    site.sim.run(consumer.close())
    assert not consumer.unread
    with pytest.raises(ClosedError):
        site.sim.run(consumer.consume(10))


def test_what_was_taken_and_not_given_out_is_not_committed(site: Site) -> None:
    site.produce(b"a", b"b", b"c", b"d")
    consumer = site.consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([T0])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    records = consumer.unread.records()
    assert [next(records).value, next(records).value] == [b"a", b"b"]
    assert site.sim.run(consumer.position(T0)) == 2
    site.sim.run(consumer.commit())
    assert site.sim.run(consumer.committed([T0]))[T0].offset == 2  # type: ignore[union-attr]
    assert [record.value for record in records] == [b"c", b"d"]
    site.sim.run(consumer.commit())
    assert site.sim.run(consumer.committed([T0]))[T0].offset == 4  # type: ignore[union-attr]


def test_a_seek_drops_what_was_taken_of_that_partition_only(site: Site) -> None:
    site.produce(b"a", b"b")
    site.produce(b"x", b"y", partition=1)
    consumer = site.consumer()
    consumer.subscribe(["t"])
    taken: list[Any] = []
    while len(taken) < 4:
        taken += site.sim.run(consumer.consume(10))
    consumer.unread.put(taken)
    consumer.seek(T0, 1)
    assert sorted(record.value for record in consumer.unread.records()) == [b"x", b"y"]
    assert [record.value for record in site.sim.run(consumer.consume(10))] == [b"b"]


def test_what_is_given_back_is_fetched_again(site: Site) -> None:
    site.produce(b"a", b"b", b"c")
    consumer = site.consumer()
    consumer.assign([T0])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    next(consumer.unread.records())
    consumer.give_back_unread()
    assert not consumer.unread
    assert [record.value for record in site.sim.run(consumer.consume(10))] == [b"b", b"c"]


def test_new_partitions_are_taken_up(site: Site) -> None:
    consumer = site.consumer(metadata_max_age_ms=1000)
    consumer.subscribe(pattern="t.*")
    assert site.sim.run(consumer.consume(10, 3.0)) == []
    site.sim.create_soon("t2")
    site.sim.run(consumer.consume(10, 5.0))
    assert TopicPartition("t2", 0) in consumer.assignment


def test_a_number_is_an_offset_to_commit(site: Site) -> None:
    consumer = site.consumer(group_id="g")
    consumer.assign([T0])
    site.sim.run(consumer.commit({T0: 7}))
    assert site.sim.run(consumer.committed([T0]))[T0].offset == 7  # type: ignore[union-attr]


def test_a_consumer_that_assigns_itself_commits_by_itself_too(site: Site) -> None:
    site.produce(b"a", b"b")
    consumer = site.consumer(group_id="g", auto_commit_interval_ms=1_000)
    consumer.assign([T0])
    while site.sim.run(consumer.consume(1, 2.0)):
        pass
    site.sim.advance(2_000)
    found = site.sim.run(consumer.committed([T0]))[T0]
    assert found is not None
    assert found.offset == 2


@pytest.mark.parametrize("group", [None, "g"])
def test_a_listener_whose_poll_was_given_up_hears_of_its_partitions_in_the_next(
    site: Site, group: str | None
) -> None:
    class Slow(RebalanceListener):
        told: list[TopicPartition] = []

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await site.sim.sleep(1.0)
            self.told += partitions

    consumer = site.consumer(**({} if group is None else {"group_id": group}))
    listener = Slow()
    consumer.subscribe(["t"], listener=listener)
    waiting = Deferred.fromCoroutine(consumer.consume(10))
    waiting.addErrback(lambda failure: failure.trap(Cancelled))
    site.sim.run_until(lambda: bool(consumer.assignment))
    waiting.cancel()
    site.sim.run(consumer.consume(10, 2.0))
    assert listener.told == [T0, TopicPartition("t", 1)]


def test_brokers_that_are_away_hold_up_no_poll_of_a_pattern(site: Site) -> None:
    site.sim.refuses = True
    consumer = site.consumer(group_id="g")
    consumer.subscribe(pattern="t.*")
    before_s = site.sim.now_s()
    assert site.sim.run(consumer.consume(10, 1.0)) == []
    assert site.sim.now_s() - before_s < 2
    site.sim.refuses = False
    site.produce(b"a")
    assert [x.value for x in site.sim.run(consumer.consume(10, 60.0))] == [b"a"]


@pytest.mark.parametrize("group", [None, "g"])
def test_who_is_refused_by_every_broker_is_told(
    site: Site, group: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object, **__: object) -> Any:
        raise AuthenticationFailed("who are you?")

    site.produce(b"a")
    consumer = site.consumer(**({} if group is None else {"group_id": group}))
    monkeypatch.setattr(site.sim, "connect", refuse)
    consumer.subscribe(["t"])
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="who are you"):
            site.sim.run(consumer.consume(10, 5.0))
    site.sim.advance(5_000)
    assert caplog.text.count("no metadata: who are you?") == 1
    monkeypatch.undo()
    site.sim.advance(5_000)
    records: list[bytes] = []
    while not records:  # What was found out before is told, too.
        with suppress(AuthenticationFailed):
            records += [x.value for x in site.sim.run(consumer.consume(10, 5.0))]
    assert records == [b"a"]


def test_an_assignor_that_fails_is_told_and_costs_no_partitions(site: Site) -> None:
    class Failing(RangeAssignor):
        name = "failing"

        def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
            raise ZeroDivisionError

    site.produce(b"a")
    consumer = site.consumer(group_id="g", assignors=[Failing()])
    consumer.subscribe(["t"])
    with pytest.raises(ZeroDivisionError):
        site.sim.run(consumer.consume(10))
    assert [x.value for x in site.sim.run(consumer.consume(10))] == [b"a"]


def test_what_is_no_partition_and_no_offset_is_named(site: Site) -> None:
    site.produce(b"a")
    consumer = site.consumer(group_id="g")
    wrong: Any = ["t"]
    with pytest.raises(TypeError, match="'t' is not a TopicPartition"):
        consumer.assign(wrong)
    assert consumer.assignment == frozenset()
    consumer.assign([("t", 0)])  # type: ignore[list-item]
    for offset in ("5", 1.5):
        with pytest.raises(TypeError, match=f"{offset}.* is not an offset"):
            consumer.seek(T0, offset)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"cannot commit .*: give a number or"):
            site.sim.run(consumer.commit({T0: offset}))  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="is not a TopicPartition"):
        site.sim.run(consumer.committed(wrong))
    assert [x.value for x in site.sim.run(consumer.consume(10))] == [b"a"]


def test_without_anything_to_read_nobody_waits(site: Site) -> None:
    consumer = site.consumer()
    for _ in range(2):
        with pytest.raises(IllegalState, match="nothing to read: subscribe to topics or assign"):
            site.sim.run(consumer.consume(10))
        consumer.subscribe(["t"])
        site.sim.run(consumer.unsubscribe())


def test_without_partitions_there_is_nowhere_to_seek(site: Site) -> None:
    consumer = site.consumer()
    consumer.subscribe(["t"])
    for seek in (
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: consumer.seek_to_time(1),
    ):
        with pytest.raises(IllegalState, match="cannot seek: no partitions are assigned"):
            seek()


def test_who_leaves_without_a_word_commits_nothing_and_makes_room(site: Site) -> None:
    site.produce(b"a")
    gone = site.consumer(group_id="g")
    gone.subscribe(["t"])
    assert len(site.sim.run(gone.consume(10))) == 1
    site.sim.run(gone.abandon())
    heir = site.consumer(group_id="g", session_timeout_ms=45_000)
    heir.subscribe(["t"])
    before_s = site.sim.now_s()
    assert [x.value for x in site.sim.run(heir.consume(10))] == [b"a"]
    assert site.sim.now_s() - before_s < 20
    site.consumer().subscribe(["t"])
    site.sim.run(site.consumer().abandon())


def test_one_partition_by_itself_is_no_list(site: Site) -> None:
    consumer = site.consumer(group_id="g")
    lonely: Any = T0
    for method in (consumer.assign, consumer.pause, consumer.resume, consumer.seek_to_end):
        with pytest.raises(TypeError, match="partitions must be a list: "):
            method(lonely)
    with pytest.raises(TypeError, match="partitions must be a list: "):
        site.sim.run(consumer.end_offsets(lonely))


def test_a_time_may_be_a_datetime(site: Site) -> None:
    now_ms = site.sim.wall_ms()
    site.sim.broker.produce("t", b"a", now_ms=now_ms - 10_000)
    site.sim.broker.produce("t", b"b", now_ms=now_ms)
    later = datetime.fromtimestamp(now_ms / 1000, UTC)
    consumer = site.consumer()
    consumer.assign([T0])
    consumer.seek_to_time(later)
    assert [x.value for x in site.sim.run(consumer.consume(10))] == [b"b"]
    found = site.sim.run(consumer.offsets_for_times({T0: later}))[T0]
    assert found is not None
    assert found.offset == 1
    with pytest.raises(ValueError, match="no time zone"):
        consumer.seek_to_time(later.replace(tzinfo=None))


def test_the_lag_counts_what_was_not_given_out(site: Site) -> None:
    site.produce(b"a", b"b", b"c")
    consumer = site.consumer()
    consumer.assign([T0])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    lags = [consumer.lag(T0) for _ in consumer.unread.records()]
    assert lags == [2, 1, 0]


def test_a_seek_to_what_is_committed_gives_the_rest_again(site: Site) -> None:
    site.produce(b"a", b"b", b"c")
    site.produce(b"d", partition=1)
    consumer = site.consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([T0, T1])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    site.sim.run(consumer.commit({T0: 1}))
    site.sim.run(consumer.seek_to_committed([T0]))
    assert site.sim.run(consumer.position(T0)) == 1
    while not consumer.unread.offsets().keys() >= {T1}:
        consumer.unread.put(site.sim.run(consumer.consume(10)))
    site.sim.run(consumer.seek_to_committed())  # Nothing is committed of T1: the policy decides.
    again: list[bytes] = []
    while len(again) < 3:
        again += [x.value for x in site.sim.run(consumer.consume(10))]
    assert sorted(again) == [b"b", b"c", b"d"]


def test_a_seek_to_what_is_not_committed_says_so_without_a_policy(site: Site) -> None:
    consumer = site.consumer(group_id="g", auto_offset_reset="none")
    consumer.assign([T0, T1])
    site.sim.run(consumer.commit({T0: 0}))
    with pytest.raises(NoOffsetForPartition, match=r"no committed offset for t-1, and") as caught:
        site.sim.run(consumer.seek_to_committed())
    assert caught.value.partitions == {T1}


@pytest.mark.parametrize("count", [0, -1])
def test_nobody_waits_for_less_than_one_record(site: Site, count: int) -> None:
    site.produce(b"a")
    consumer = site.consumer()
    consumer.subscribe(["t"])
    with pytest.raises(ValueError, match=f"max_records is {count}"):
        site.sim.run(consumer.consume(count))


def test_there_is_no_seek_to_what_was_committed_without_partitions(site: Site) -> None:
    consumer = site.consumer(group_id="g")
    with pytest.raises(IllegalState, match="nowhere to seek: nothing is assigned"):
        site.sim.run(consumer.seek_to_committed())
    consumer.assign([T0])
    with pytest.raises(IllegalState, match="nowhere to seek: t-1 is not assigned"):
        site.sim.run(consumer.seek_to_committed([T0, T1]))
