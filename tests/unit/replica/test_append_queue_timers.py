"""Appends that wait while a timer cannot be set: each is made or fails, and none stops others."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from tests.helpers.injection import Faults, When
from tests.helpers.sim_broker import START_MS, SimBroker, create_topic, records_of
from tests.unit.replica.test_append_queue import (
    append,
    assert_nothing_is_left,
    batch,
    errors,
    offsets,
    queues,
)


@pytest.fixture
def broker() -> SimBroker:
    """Its topic is compacted, so that compressed batches are validated by jobs."""
    broker = SimBroker().start()
    create_topic(broker, "t", cleanup_policy="compact")
    broker.settle()
    return broker


@pytest.fixture
def faults() -> Faults:
    faults = Faults()
    faults.arm(1, When.BEFORE, MemoryError("injected"))
    return faults


def test_append_whose_queue_gets_no_turn_leaves_nothing(broker: SimBroker, faults: Faults) -> None:
    broker.ports.turn._timers = faults.timers(broker.ports.timers)
    with pytest.raises(MemoryError):
        append(broker, batch())
    with broker.ports.turn:
        sent = append(broker, batch())
    broker.settle()
    assert offsets(sent) == [0]
    assert_nothing_is_left(broker)


def test_next_append_is_made_when_an_answer_gets_no_turn(broker: SimBroker, faults: Faults) -> None:
    keyless = build_batch([Record(timestamp=START_MS, value=b"v")], compression=Compression.GZIP)
    sent = [append(broker, keyless), append(broker, batch())]
    broker.ports.timers.run_due()  # The validation of the first one begins.
    broker.ports.turn._timers = faults.timers(broker.ports.timers)
    with pytest.raises(MemoryError):
        broker.settle()
    broker.settle()
    assert [errors(one) for one in sent] == [[ErrorCode.INVALID_RECORD], [0]]
    assert_nothing_is_left(broker)


def test_queues_without_a_timer_go_on_with_the_next_turn(faults: Faults) -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    sent = append(broker, records_of((b"x",)), *[0] * 1000)
    queues(broker)._timers = faults.timers(broker.ports.timers)
    with pytest.raises(MemoryError):
        broker.settle()
    broker.settle()
    assert offsets(sent) == list(range(1000))
    assert_nothing_is_left(broker)


def test_append_is_not_made_when_its_deadline_cannot_be_set(
    broker: SimBroker, faults: Faults
) -> None:
    deadlines = queues(broker)._deadlines
    timers, deadlines._timers = deadlines._timers, faults.timers(broker.ports.timers)
    failing = append(broker, batch(producer_id=7, producer_epoch=0, base_sequence=0))
    broker.settle()
    with pytest.raises(MemoryError):
        errors(failing)
    deadlines._timers = timers
    [log] = [
        log for log in broker.broker.log_manager.logs.values() if log.topic_partition[0] == "t"
    ]
    assert log.log_end_offset == 0
    assert_nothing_is_left(broker)


def test_appended_records_time_out_when_no_deadline_can_be_set_for_them(faults: Faults) -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    produces = broker.broker.replica_manager.delayed_produces
    timers, produces._timers = produces._timers, faults.timers(broker.ports.timers)
    sent = append(broker, records_of((b"x",)))
    produces._timers = timers
    assert errors(sent) == [ErrorCode.REQUEST_TIMED_OUT]
    assert [where for where, _ in broker.bugs] == ["waiting for records to become safe"]
    broker.settle()
    [log] = [
        log for log in broker.broker.log_manager.logs.values() if log.topic_partition[0] == "t"
    ]
    assert log.log_end_offset == 1
