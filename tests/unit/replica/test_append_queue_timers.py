"""Queued appends when timers cannot be set: each succeeds or fails, and none blocks others."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from tests.helpers.injection import Faults, When
from tests.helpers.sim.sim_broker import START_MS, SimBroker, create_topic, records_of
from tests.unit.replica.test_append_queue import (
    append,
    assert_nothing_is_left,
    batch,
    errors,
    offsets,
)


@pytest.fixture
def broker() -> SimBroker:
    """Return a broker with a compacted topic, so that jobs validate compressed batches."""
    broker = SimBroker().start()
    create_topic(broker, "t", cleanup_policy="compact")
    broker.settle()
    return broker


@pytest.fixture
def faults() -> Faults:
    faults = Faults()
    faults.arm(1, When.BEFORE, MemoryError("injected"))
    return faults


def test_append_whose_queue_cannot_be_scheduled_leaves_no_state(
    broker: SimBroker, faults: Faults
) -> None:
    broker.ports.turn._timers = faults.timers(broker.ports.timers)
    with pytest.raises(MemoryError):
        append(broker, batch())
    with broker.ports.turn:
        sent = append(broker, batch())
    broker.settle()
    assert offsets(sent) == [0]
    assert_nothing_is_left(broker)


def test_next_append_is_made_when_a_response_cannot_be_scheduled(
    broker: SimBroker, faults: Faults
) -> None:
    keyless = build_batch([Record(timestamp=START_MS, value=b"v")], compression=Compression.GZIP)
    sent = [append(broker, keyless), append(broker, batch())]
    broker.ports.timers.run_due()  # The validation of the first one starts.
    broker.ports.turn._timers = faults.timers(broker.ports.timers)
    with pytest.raises(MemoryError):
        broker.settle()
    broker.settle()
    assert [errors(one) for one in sent] == [[ErrorCode.INVALID_RECORD], [0]]
    assert_nothing_is_left(broker)


@pytest.mark.parametrize("number", range(1, 4))
def test_appends_complete_when_setting_a_timer_fails_once(number: int) -> None:
    broker, faults = SimBroker().start(), Faults()
    create_topic(broker, "t")
    faults.arm(number, When.BEFORE, MemoryError("injected"))
    broker.broker.timers._timers = faults.timers(broker.ports.timers)
    sent = append(broker, records_of((b"x",)), *[0] * 1000)
    broker.settle()
    assert offsets(sent) == list(range(1000))
    assert [error for _, error in broker.bugs] == faults.raised != []
    broker.bugs.clear()
    assert_nothing_is_left(broker)
