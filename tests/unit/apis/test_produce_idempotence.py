"""F30, F31: producers at the end of their sequence numbers, after retention, after restarts."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from tests.helpers.sim.sim_broker import SimBroker, create_topic

LAST = 2**31 - 1
DAY_MS = 86_400_000


class Producer:
    """Sends batches with one producer id to topic t."""

    def __init__(self, broker: SimBroker, epoch: int = 0) -> None:
        self.broker = broker
        self.epoch = epoch

    def send(self, sequence: int, records: int = 1) -> tuple[int, int]:
        """Send a batch; return the error code and the base offset."""
        answer = self.broker.produce(
            "t",
            *[b"x"] * records,
            producer_id=4000,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            now_ms=self.broker.ports.clock.now_ms(),
        )
        return answer.error_code, answer.base_offset


def make(**config: str) -> Producer:
    broker = SimBroker().start()
    create_topic(broker, "t", **config)
    return Producer(broker)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("records", [1, 3])
def test_sequence_numbers_wrap_to_zero(records: int, restart: bool) -> None:
    """This holds even if a restart knows only the batch that wraps."""
    producer = make()
    first = LAST - 1
    assert producer.send(first, 1) == (0, 0)
    assert producer.send(LAST, records) == (0, 1)  # Ends at LAST, or wraps and ends at 1.
    if restart:
        producer.broker = producer.broker.restart()
    assert producer.send(LAST, records) == (0, 1)  # A duplicate.
    next_sequence = (LAST + records) % 2**31
    assert producer.send(next_sequence + 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(next_sequence) == (0, 1 + records)


def test_last_epoch_is_accepted_and_fences_the_previous_one() -> None:
    producer = make()
    producer.epoch = 32_766
    assert producer.send(0) == (0, 0)
    producer.epoch = 32_767
    assert producer.send(0) == (0, 1)
    producer.epoch = 32_766
    assert producer.send(1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("how", ["none", "stop", "kill"])
def test_producer_state_survives_deletion_of_its_batches(how: str) -> None:
    """The next batch is accepted, a duplicate is recognized, and a gap is refused."""
    producer = make()
    for sequence in range(3):
        producer.send(sequence)
    log = producer.broker.log("t")
    log.roll()
    producer.broker.settle()
    log.delete_records_before(3)
    producer.broker.ports.advance(120_000)
    producer.broker.broker.log_manager.write_log_starts()
    producer.broker.settle()
    if how == "stop":
        producer.broker.stop()
    if how != "none":
        producer.broker = producer.broker.restart()
    assert producer.broker.log("t").log_start_offset == 3
    assert producer.send(2) == (0, 2)
    assert producer.send(4)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(3) == (0, 3)


def test_expired_producer_can_continue() -> None:
    """Its state is removed, and it never gets UNKNOWN_PRODUCER_ID (KIP-360)."""
    producer = make()
    for sequence in range(3):
        producer.send(sequence)
    log_manager, clock = producer.broker.broker.log_manager, producer.broker.ports.clock
    log_manager.expire_producers(clock.monotonic_ms())
    producer.broker.ports.advance(2 * DAY_MS)
    log_manager.expire_producers(clock.monotonic_ms())
    assert producer.broker.log("t").producer_state.producers == {}
    assert producer.send(3) == (0, 3)
    assert producer.send(3) == (0, 3)
