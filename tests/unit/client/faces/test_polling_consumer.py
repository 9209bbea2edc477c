"""`PollingConsumer`: waiting, wakeup, and records that were taken but not yet returned."""

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
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import create_topic

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


def test_consumer_without_group_reads_all_partitions(site: Site) -> None:
    site.produce(b"a")
    site.produce(b"b", partition=1)
    consumer = site.consumer()
    consumer.subscribe(["t"])
    seen = set()
    while len(seen) < 2:
        seen |= {record.value for record in site.sim.run(consumer.consume(10))}
    assert seen == {b"a", b"b"}
    assert consumer.assignment == {T0, TopicPartition("t", 1)}


def test_consume_waits_until_there_are_records(site: Site) -> None:
    consumer = site.consumer()
    consumer.assign([T0])
    site.sim.call_later(5, lambda: site.produce(b"late"))
    [record] = site.sim.run(consumer.consume(10))
    assert record.value == b"late"
    assert site.sim.now_s() >= 5


def test_consume_returns_empty_after_its_timeout(site: Site) -> None:
    consumer = site.consumer()
    consumer.assign([T0])
    before_s = site.sim.now_s()
    assert site.sim.run(consumer.consume(10, 2.0)) == []
    assert 2 <= site.sim.now_s() - before_s < 2.2
    assert site.sim.run(consumer.wait_for_data(0.5)) is False


@pytest.mark.parametrize("group", [None, "g"])
def test_consume_raises_for_an_invalid_topic_name(site: Site, group: str | None) -> None:
    consumer = site.consumer(group_id=group)
    consumer.subscribe(["no such name"])
    with pytest.raises(InvalidTopicException, match="no such name"):
        site.sim.run(consumer.consume(10))


def test_wakeup_ends_a_wait(site: Site) -> None:
    consumer = site.consumer()
    consumer.assign([T0])
    site.sim.call_later(1, consumer.wake_up)
    with pytest.raises(WokenUp):
        site.sim.run(consumer.consume(10))
    site.produce(b"x")
    assert len(site.sim.run(consumer.consume(10))) == 1


def test_cancelled_wait_does_not_count_as_polling(site: Site) -> None:
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


def test_close_ends_a_wait(site: Site) -> None:
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


def test_closed_consumer_returns_no_records(site: Site) -> None:
    site.produce(b"a", b"b")
    consumer = site.consumer()
    consumer.subscribe(["t"])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    site.sim.run(consumer.close())
    assert not consumer.unread
    with pytest.raises(ClosedError):
        site.sim.run(consumer.consume(10))


def test_unreturned_records_are_not_committed(site: Site) -> None:
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


def test_seek_drops_unreturned_records_of_that_partition_only(site: Site) -> None:
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


def test_records_given_back_are_fetched_again(site: Site) -> None:
    site.produce(b"a", b"b", b"c")
    consumer = site.consumer()
    consumer.assign([T0])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    next(consumer.unread.records())
    consumer.give_back_unread()
    assert not consumer.unread
    assert [record.value for record in site.sim.run(consumer.consume(10))] == [b"b", b"c"]


def test_new_partitions_are_read(site: Site) -> None:
    consumer = site.consumer(metadata_max_age_ms=1000)
    consumer.subscribe(pattern="t.*")
    assert site.sim.run(consumer.consume(10, 3.0)) == []
    site.sim.create_soon("t2")
    site.sim.run(consumer.consume(10, 5.0))
    assert TopicPartition("t2", 0) in consumer.assignment


def test_commit_accepts_plain_offsets(site: Site) -> None:
    consumer = site.consumer(group_id="g")
    consumer.assign([T0])
    site.sim.run(consumer.commit({T0: 7}))
    assert site.sim.run(consumer.committed([T0]))[T0].offset == 7  # type: ignore[union-attr]


def test_consumer_with_assigned_partitions_commits_automatically(site: Site) -> None:
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
def test_listener_gets_its_partitions_in_the_next_poll_after_a_cancelled_one(
    site: Site, group: str | None
) -> None:
    class Slow(RebalanceListener):
        assigned: list[TopicPartition] = []

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await site.sim.sleep(1.0)
            self.assigned += partitions

    consumer = site.consumer(**({} if group is None else {"group_id": group}))
    listener = Slow()
    consumer.subscribe(["t"], listener=listener)
    waiting = Deferred.fromCoroutine(consumer.consume(10))
    waiting.addErrback(lambda failure: failure.trap(Cancelled))
    site.sim.run_until(lambda: bool(consumer.assignment))
    waiting.cancel()
    site.sim.run(consumer.consume(10, 2.0))
    assert listener.assigned == [T0, TopicPartition("t", 1)]


def test_poll_with_pattern_keeps_its_timeout_when_brokers_are_unreachable(site: Site) -> None:
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
def test_consume_raises_when_every_broker_refuses_authentication(
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
    assert caplog.text.count("metadata refresh failed: who are you?") == 1
    monkeypatch.undo()
    site.sim.advance(5_000)
    records: list[bytes] = []
    while not records:  # A poll may still raise the error of an earlier attempt.
        with suppress(AuthenticationFailed):
            records += [x.value for x in site.sim.run(consumer.consume(10, 5.0))]
    assert records == [b"a"]


def test_failing_assignor_raises_in_poll_and_keeps_the_partitions(site: Site) -> None:
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


def test_invalid_partition_or_offset_is_named_in_the_error(site: Site) -> None:
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
        with pytest.raises(TypeError, match=r"cannot commit .*: pass a number or"):
            site.sim.run(consumer.commit({T0: offset}))  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="is not a TopicPartition"):
        site.sim.run(consumer.committed(wrong))
    assert [x.value for x in site.sim.run(consumer.consume(10))] == [b"a"]


def test_consume_raises_without_subscription_or_assignment(site: Site) -> None:
    consumer = site.consumer()
    for _ in range(2):
        with pytest.raises(IllegalState, match="nor an assignment; subscribe to topics or"):
            site.sim.run(consumer.consume(10))
        consumer.subscribe(["t"])
        site.sim.run(consumer.unsubscribe())


def test_seek_raises_without_assigned_partitions(site: Site) -> None:
    consumer = site.consumer()
    consumer.subscribe(["t"])
    for seek in (
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: consumer.seek_to_time(1),
    ):
        with pytest.raises(IllegalState, match="cannot seek: no partitions are assigned"):
            seek()


def test_abandon_leaves_the_group_without_commit(site: Site) -> None:
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


def test_single_partition_instead_of_a_list_is_refused(site: Site) -> None:
    consumer = site.consumer(group_id="g")
    lonely: Any = T0
    for method in (consumer.assign, consumer.pause, consumer.resume, consumer.seek_to_end):
        with pytest.raises(TypeError, match="partitions must be a list: "):
            method(lonely)
    with pytest.raises(TypeError, match="partitions must be a list: "):
        site.sim.run(consumer.end_offsets(lonely))


def test_seek_to_time_accepts_a_datetime(site: Site) -> None:
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
    with pytest.raises(ValueError, match="does not have a time zone"):
        consumer.seek_to_time(later.replace(tzinfo=None))


def test_lag_includes_unreturned_records(site: Site) -> None:
    site.produce(b"a", b"b", b"c")
    consumer = site.consumer()
    consumer.assign([T0])
    consumer.unread.put(site.sim.run(consumer.consume(10)))
    lags = [consumer.lag(T0) for _ in consumer.unread.records()]
    assert lags == [2, 1, 0]


def test_seek_to_committed_rereads_records_after_the_commit(site: Site) -> None:
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
    site.sim.run(consumer.seek_to_committed())  # T1 has no committed offset: the reset applies.
    again: list[bytes] = []
    while len(again) < 3:
        again += [x.value for x in site.sim.run(consumer.consume(10))]
    assert sorted(again) == [b"b", b"c", b"d"]


def test_seek_to_committed_raises_without_offset_and_reset_policy(site: Site) -> None:
    consumer = site.consumer(group_id="g", auto_offset_reset="none")
    consumer.assign([T0, T1])
    site.sim.run(consumer.commit({T0: 0}))
    with pytest.raises(NoOffsetForPartition, match=r"no committed offset for t-1, and") as caught:
        site.sim.run(consumer.seek_to_committed())
    assert caught.value.partitions == {T1}


@pytest.mark.parametrize("count", [0, -1])
def test_consume_refuses_max_records_below_one(site: Site, count: int) -> None:
    site.produce(b"a")
    consumer = site.consumer()
    consumer.subscribe(["t"])
    with pytest.raises(ValueError, match=f"max_records is {count}"):
        site.sim.run(consumer.consume(count))


def test_seek_to_committed_raises_for_unassigned_partitions(site: Site) -> None:
    consumer = site.consumer(group_id="g")
    with pytest.raises(IllegalState, match=r"cannot seek .* no partitions are assigned"):
        site.sim.run(consumer.seek_to_committed())
    consumer.assign([T0])
    with pytest.raises(IllegalState, match=r"cannot seek .* not assigned: t-1"):
        site.sim.run(consumer.seek_to_committed([T0, T1]))
