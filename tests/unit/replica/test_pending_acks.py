"""Pending acks: single appends complete in order, expire, or are cancelled, exactly once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from plog.errors import ErrorCode, KafkaError, KafkaStorageError
from plog.types import TopicPartition
from plogd.log.log_results import AppendInfo
from plogd.ports import Cancelled, Later
from plogd.replica.delayed_produce import PartitionAppend
from plogd.replica.partition import ACKS_ALL
from plogd.replica.pending_acks import PendingAck, PendingAcks
from plogd.replica.replica_manager import ReplicaManager
from plogd.replica.timing_wheel import TICK_MS
from tests.helpers.sim.sim_broker import SimBroker, create_topic, records_of
from tests.helpers.sim.sim_ports import SimPorts, outcome

KEY = TopicPartition("t", 0)
OTHER_KEY = TopicPartition("t", 1)


class Site:
    """Pending acks of partitions whose ends a test sets."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.bugs: list[str] = []
        self.pending_acks = PendingAcks(
            self.ports.clock,
            self.ports.timers,
            on_bug=lambda where, error: self.bugs.append(str(error)),
        )
        self.partitions = {key: _partition() for key in (KEY, OTHER_KEY)}
        self.completed: list[int] = []
        """The last offsets of the completed appends, in the order of their completion."""
        self.errors: list[KafkaError | None] = []

    def append(
        self, offset: int, *, key: TopicPartition = KEY, writing: Any = None
    ) -> PartitionAppend:
        append = PartitionAppend(key)
        append.partition = cast(Any, self.partitions[key])
        append.info = AppendInfo(offset, offset, -1, 0, writing=writing)
        return append

    def add(
        self,
        offset: int,
        *,
        key: TopicPartition = KEY,
        acks: int = ACKS_ALL,
        timeout_ms: float = 1000,
    ) -> PendingAck:
        pending = self.pending_acks.add(self.append(offset, key=key), acks, timeout_ms)
        assert pending is not None
        pending.then(self._completed, lambda _: None)
        return pending

    def _completed(self, appends: list[PartitionAppend]) -> None:
        [append] = appends
        assert append.info is not None
        self.completed.append(append.info.last_offset)
        self.errors.append(append.error)

    def advance(self, end_offset: int, key: TopicPartition = KEY) -> None:
        log = self.partitions[key].log
        log.high_watermark = log.acknowledged_end_offset = end_offset
        self.pending_acks.check(key)


def _partition() -> SimpleNamespace:
    return SimpleNamespace(
        log=SimpleNamespace(high_watermark=0, acknowledged_end_offset=0),
        leader_epoch=-1,
        isr=(0,),
        min_isr=1,
        failure=None,
        problem=lambda: None,
    )


def test_check_completes_the_appends_below_the_high_watermark_in_order() -> None:
    site = Site()
    for offset in range(5):
        site.add(offset)
    site.advance(3)
    assert (site.completed, len(site.pending_acks)) == ([0, 1, 2], 2)
    site.advance(5)
    assert (site.completed, len(site.pending_acks)) == ([0, 1, 2, 3, 4], 0)
    assert site.errors == [None] * 5


def test_check_leaves_other_partitions_alone() -> None:
    site = Site()
    site.add(0)
    site.add(0, key=OTHER_KEY)
    site.partitions[OTHER_KEY].log.high_watermark = 1
    site.advance(1)
    assert (site.completed, len(site.pending_acks)) == ([0], 1)


def test_acks_1_does_not_wait_for_an_earlier_append_with_acks_all() -> None:
    site = Site()
    site.add(0, acks=ACKS_ALL)
    site.add(1, acks=1)
    site.partitions[KEY].log.acknowledged_end_offset = 2
    site.pending_acks.check(KEY)
    assert site.completed == [1]


def test_duplicate_of_a_waiting_batch_must_wait_elsewhere() -> None:
    site = Site()
    site.add(4)
    site.add(5)
    assert site.pending_acks.add(site.append(4), ACKS_ALL, 1000) is None
    assert site.pending_acks.add(site.append(5), ACKS_ALL, 1000) is None


def test_duplicate_waits_here_when_no_other_append_waits() -> None:
    site = Site()
    site.add(4)
    site.advance(4)
    assert site.completed == []
    site.advance(5)
    assert site.completed == [4]


@pytest.mark.parametrize("acks", [0, 1, ACKS_ALL])
def test_append_that_a_job_still_writes_must_wait_elsewhere(acks: int) -> None:
    site = Site()
    writing = SimpleNamespace(is_written=False, error=None)
    assert site.pending_acks.add(site.append(0, writing=writing), acks, 1000) is None
    assert len(site.pending_acks) == 0


def test_failed_partition_fails_all_its_waiting_appends() -> None:
    site = Site()
    for offset in range(3):
        site.add(offset)
    site.partitions[KEY].log.high_watermark = 1
    site.partitions[KEY].problem = lambda: KafkaStorageError("offline")
    site.pending_acks.check(KEY)
    codes = [0 if error is None else error.code for error in site.errors]
    assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
    assert len(site.pending_acks) == 0


def test_shrunken_isr_fails_appends_that_are_replicated() -> None:
    site = Site()
    site.add(0)
    site.partitions[KEY].isr = ()
    site.advance(1)
    [error] = site.errors
    assert error is not None
    assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# -- timeouts ---------------------------------------------------------------------------------


def test_append_expires_once_and_at_most_a_tick_late() -> None:
    site = Site()
    site.add(0, timeout_ms=105)
    site.ports.advance(104)
    assert site.completed == []
    site.ports.advance(1 + TICK_MS)
    [error] = site.errors
    assert error is not None
    assert error.code == ErrorCode.REQUEST_TIMED_OUT
    site.advance(1)
    assert (site.completed, len(site.pending_acks), site.pending_acks.expired) == ([0], 0, 1)


def test_append_in_the_middle_of_its_queue_may_expire_first() -> None:
    site = Site()
    site.add(0, timeout_ms=10_000)
    site.add(1, timeout_ms=100)
    site.add(2, timeout_ms=5000)
    site.ports.advance(200)
    assert site.completed == [1]
    site.advance(3)
    assert site.completed == [1, 0, 2]


def test_timer_is_set_again_for_appends_that_are_not_due() -> None:
    site = Site()
    site.add(0, timeout_ms=100)
    site.add(1, timeout_ms=300, key=OTHER_KEY)
    site.advance(1)
    site.ports.advance(200)
    assert site.completed == [0]
    site.ports.advance(200)
    assert site.completed == [0, 1]


def test_timeouts_in_the_same_tick_share_a_timer() -> None:
    site = Site()
    for offset in range(5):
        site.add(offset, timeout_ms=100 - offset)
    site.ports.timers.run_next()
    assert site.completed == [0, 1, 2, 3, 4]


def test_append_that_is_safe_when_it_times_out_succeeds() -> None:
    site = Site()
    site.add(0, timeout_ms=100)
    site.partitions[KEY].log.high_watermark = 1
    site.ports.advance(200)
    assert (site.errors, site.pending_acks.expired) == ([None], 0)


def test_no_timer_remains_when_nothing_waits() -> None:
    site = Site()
    site.add(0, timeout_ms=100)
    site.advance(1)
    site.ports.advance(200)
    assert site.ports.timers.next_due_ms is None


def test_append_is_not_added_if_its_timer_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()

    def broken(delay_ms: float, function: object) -> None:
        raise MemoryError

    monkeypatch.setattr(site.ports.timers, "call_later", broken)
    with pytest.raises(MemoryError):
        site.pending_acks.add(site.append(0), ACKS_ALL, 100)
    assert len(site.pending_acks) == 0


# -- cancellation -----------------------------------------------------------------------------


def test_cancelled_append_neither_completes_nor_expires() -> None:
    site = Site()
    pending = site.pending_acks.add(site.append(0), ACKS_ALL, 100)
    assert pending is not None
    errors: list[Exception] = []
    pending.then(site._completed, errors.append)
    pending.cancel()
    pending.cancel()
    site.advance(1)
    site.ports.advance(200)
    assert [type(error) for error in errors] == [Cancelled]
    assert (site.completed, len(site.pending_acks), site.pending_acks.expired) == ([], 0, 0)


def test_completion_may_cancel_another_append_of_the_same_check() -> None:
    site = Site()
    first = site.pending_acks.add(site.append(0), ACKS_ALL, 1000)
    assert first is not None
    second = site.add(1)
    site.add(2)
    first.then(lambda _: second.cancel(), lambda _: None)
    site.advance(3)
    assert (site.completed, len(site.pending_acks)) == ([2], 0)


def test_completion_may_add_an_append() -> None:
    site = Site()
    first = site.pending_acks.add(site.append(0), ACKS_ALL, 1000)
    assert first is not None
    first.then(lambda _: cast(None, site.add(1)), lambda _: None)
    site.advance(1)
    assert (site.completed, len(site.pending_acks)) == ([], 1)
    site.advance(2)
    assert site.completed == [1]


# -- bugs -------------------------------------------------------------------------------------


def test_bug_in_a_callback_does_not_affect_other_appends() -> None:
    site = Site()
    broken = site.pending_acks.add(site.append(0), ACKS_ALL, 1000)
    assert broken is not None
    broken.then(_raise, lambda _: None)
    site.add(1)
    site.advance(2)
    assert (site.completed, site.bugs, len(site.pending_acks)) == ([1], ["callback"], 0)


def test_bug_in_a_callback_does_not_affect_other_timeouts() -> None:
    site = Site()
    broken = site.pending_acks.add(site.append(0), ACKS_ALL, 100)
    assert broken is not None
    broken.then(_raise, lambda _: None)
    site.add(1, timeout_ms=100)
    site.add(2, timeout_ms=500)
    site.ports.advance(200)
    assert (site.completed, site.bugs, len(site.pending_acks)) == ([1], ["callback"], 1)
    site.ports.advance(400)
    assert site.completed == [1, 2]


def _raise(value: object) -> None:
    raise ValueError("callback")


def test_bug_in_a_check_fails_the_append_and_does_not_acknowledge_it() -> None:
    site = Site()
    site.add(0)
    del site.partitions[KEY].log.high_watermark
    site.pending_acks.check(KEY)
    [error] = site.errors
    assert error is not None
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (len(site.bugs), len(site.pending_acks)) == (1, 0)


# -- many appends -----------------------------------------------------------------------------


def test_check_of_thousands_of_appends_looks_at_those_that_complete_and_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    looks = 0
    is_waiting = PartitionAppend.is_waiting

    def count(append: PartitionAppend, acks: int) -> bool:
        nonlocal looks
        looks += 1
        return is_waiting(append, acks)

    monkeypatch.setattr(PartitionAppend, "is_waiting", count)
    for offset in range(5000):
        site.add(offset)
    for end_offset in range(0, 5001, 10):
        site.advance(end_offset)
    assert site.completed == list(range(5000))
    assert looks <= 5000 + 501


def test_thousands_of_clients_may_disconnect_in_any_order() -> None:
    site = Site()
    waiting: list[Later[Any]] = [site.add(offset) for offset in range(5000)]
    for pending in reversed(waiting[1::2]):
        pending.cancel()
    site.advance(2500)
    assert site.completed == list(range(0, 2500, 2))
    for pending in waiting:
        pending.cancel()
    assert len(site.pending_acks) == 0


# -- in a broker ------------------------------------------------------------------------------


def _make() -> tuple[SimBroker, ReplicaManager]:
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    return broker, broker.broker.replica_manager


def _append(
    manager: ReplicaManager, *partitions: int, acks: int = ACKS_ALL
) -> Later[list[PartitionAppend]]:
    appended = manager.append_records(
        [
            (TopicPartition("t", number), memoryview(bytearray(records_of((b"v",)))))
            for number in partitions
        ],
        required_acks=acks,
        timeout_ms=1000,
    )
    assert isinstance(appended, Later)
    return appended


def _error_codes(appended: Later[list[PartitionAppend]]) -> list[int]:
    return [0 if one.error is None else one.error.code for one in outcome(appended)]


def test_waiting_appends_complete_at_the_end_of_the_turn() -> None:
    broker, manager = _make()
    waiting = [_append(manager, 0, acks=acks) for acks in (ACKS_ALL, 1)]
    assert len(manager.pending_acks) == 2
    log = broker.log("t")
    with broker.ports.turn:
        ticket = log.begin_sync()
        log.complete_sync(ticket)
        ticket.release()
        assert log.high_watermark == 2, "the high watermark advances first (rule R4)"
        assert not any(appended.done for appended in waiting)
    assert [_error_codes(appended) for appended in waiting] == [[0], [0]]


def test_appends_to_a_deleted_topic_fail_without_waiting_for_their_timeout() -> None:
    broker, manager = _make()
    single, both = _append(manager, 0), _append(manager, 0, 1)
    topic = broker.broker.cache.topic("t")
    assert topic is not None
    with broker.ports.turn:
        stopped = manager.topics.stop_topic(topic)
        assert not single.done
    assert _error_codes(single) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    broker.settle()
    outcome(stopped)
    assert _error_codes(both) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert manager.waiting_produces == 0


def test_request_with_several_partitions_waits_in_the_purgatory() -> None:
    broker, manager = _make()
    cancelled, expired = _append(manager, 0, 1), _append(manager, 0, 1)
    assert (len(manager.pending_acks), len(manager.delayed_produces)) == (0, 2)
    cancelled.cancel()
    assert manager.waiting_produces == 1
    broker.ports.timers.advance(1100)
    assert _error_codes(expired) == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert manager.waiting_produces == 0
