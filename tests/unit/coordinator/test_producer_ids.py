"""Producer ids are unique despite failures, restarts and concurrent brokers."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import CoordinatorNotAvailable, KafkaStorageError
from plogd.coordinator.producer_ids import BLOCK_SIZE, ProducerIds
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    Fenced,
    Key,
    Outcome,
    ProducerIdsValue,
    Written,
)
from plogd.ports import Later
from tests.helpers.sim.sim_ports import outcome

KEY: Key = ("producer_ids",)


class Store:
    """A store with one key; writes wait for `finish`."""

    def __init__(self) -> None:
        self.value: ProducerIdsValue | None = None
        self.version = ABSENT
        self.waiting: list[tuple[Change, Later[list[Outcome]]]] = []

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        return {} if self.value is None else {KEY: (self.value, self.version)}

    def write(self, changes: list[Change], term: int | None = None) -> Later[list[Outcome]]:
        later: Later[list[Outcome]] = Later()
        self.waiting.append((changes[0], later))
        return later

    def finish(self) -> None:
        change, later = self.waiting.pop(0)
        if change.expected != self.version:
            later.succeed([Conflict(value=self.value, version=self.version)])
            return
        self.value = change.value
        self.version += 1
        later.succeed([Written(version=self.version)])


def make(store: Store, broker_id: int = 1) -> ProducerIds:
    return ProducerIds(store, broker_id=broker_id, broker_epoch=5)  # type: ignore[arg-type]


def take(ids: ProducerIds, store: Store) -> int:
    taken = ids.next_id()
    while isinstance(taken, Later) and not taken.done:
        store.finish()
    return outcome(taken) if isinstance(taken, Later) else taken


def test_no_id_is_allocated_before_its_block_is_durable() -> None:
    store = Store()
    ids = make(store)
    first = ids.next_id()
    assert isinstance(first, Later)
    assert not first.done
    store.finish()
    assert outcome(first) == 0
    assert store.value == ProducerIdsValue(broker_id=1, broker_epoch=5, next_producer_id=BLOCK_SIZE)


def test_ids_of_a_block_are_allocated_without_waiting() -> None:
    store = Store()
    ids = make(store)
    taken = [take(ids, store) for _ in range(BLOCK_SIZE)]
    assert taken == list(range(BLOCK_SIZE))
    assert isinstance(ids.next_id(), Later)


def test_waiting_requests_share_one_block() -> None:
    store = Store()
    ids = make(store)
    waiting = [ids.next_id() for _ in range(5)]
    assert len(store.waiting) == 1
    store.finish()
    assert [outcome(one) for one in waiting if isinstance(one, Later)] == [0, 1, 2, 3, 4]


def test_waiting_requests_beyond_a_block_get_a_second_block() -> None:
    store = Store()
    ids = make(store)
    waiting = [ids.next_id() for _ in range(BLOCK_SIZE + 2)]
    store.finish()
    store.finish()
    assert [outcome(one) for one in waiting if isinstance(one, Later)] == list(
        range(BLOCK_SIZE + 2)
    )


def test_restart_reserves_a_new_block() -> None:
    store = Store()
    take(make(store), store)
    assert take(make(store), store) == BLOCK_SIZE


def test_two_brokers_never_reserve_the_same_block() -> None:
    store = Store()
    one, other = make(store, 1), make(store, 2)
    first, second = one.next_id(), other.next_id()
    while store.waiting:
        store.finish()
    assert isinstance(first, Later)
    assert isinstance(second, Later)
    assert (outcome(first), outcome(second)) == (0, BLOCK_SIZE)


def test_failed_write_fails_waiting_requests_and_is_retried() -> None:
    store = Store()
    ids = make(store)
    waiting = ids.next_id()
    store.waiting.pop()[1].fail(KafkaStorageError("gone"))
    assert isinstance(waiting, Later)
    with pytest.raises(KafkaStorageError):
        outcome(waiting)
    assert take(ids, store) == 0


def test_bug_in_the_store_is_a_retriable_error() -> None:
    store = Store()
    waiting = make(store).next_id()
    store.waiting.pop()[1].fail(ZeroDivisionError())
    assert isinstance(waiting, Later)
    with pytest.raises(CoordinatorNotAvailable):
        outcome(waiting)


def test_reservation_fails_after_many_conflicts() -> None:
    store = Store()
    waiting = make(store).next_id()
    while store.waiting:
        store.waiting.pop()[1].succeed([Fenced()])
    assert isinstance(waiting, Later)
    with pytest.raises(CoordinatorNotAvailable):
        outcome(waiting)


def test_cancelled_requests_are_removed_and_get_no_id() -> None:
    store = Store()
    ids = make(store)
    for _ in range(3):
        given_up = ids.next_id()
        assert isinstance(given_up, Later)
        given_up.cancel()
    assert len(ids._waiting) == 0
    assert len(store.waiting) == 1, "the next request uses the block that is being reserved"
    assert take(ids, store) == 0
