"""Writes of many changes: one batch, prepared and applied in slices, with other writes queued."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.metadata.embedded_store import EmbeddedStore
from plogd.metadata.image import MetadataImage
from plogd.metadata.pending_write import LARGE
from plogd.metadata.store import ABSENT, Change, Conflict, Outcome, Written
from plogd.ports import Later
from tests.helpers.injection import Faults, When
from tests.unit.metadata.test_embedded_store import Disk, producer_ids, topic_changes

PARTITIONS = 3 * LARGE
ID = b"t" * 16


def large(name: str = "t") -> list[Change]:
    return topic_changes(name, name.encode() * 16, PARTITIONS)


def partitions(store: EmbeddedStore, name: str = "t") -> int:
    return len(store.load(("partition", name)))


def results(later: Later[list[Outcome]]) -> Any:
    """The outcomes of a write, or the exception it failed with."""
    found: list[Any] = []
    assert later.done, "a write has no outcome"
    later.then(found.append, found.append)
    return found[0]


def test_large_write_completes_and_survives_a_restart() -> None:
    disk = Disk()
    store = disk.open()
    told: list[object] = []
    store.watch(("partition",), lambda key, value, version: told.append(key[2]))
    written = results_of(disk, store.write_atomic(large()))
    assert [type(one) for one in written] == [Written] * (PARTITIONS + 1)
    assert told == list(range(PARTITIONS))
    assert partitions(store) == PARTITIONS
    assert len(store.get(("topic", "t"))[0].assignments) == PARTITIONS
    again = disk.open(disk.files.kill())
    assert again.load(("partition",)) == store.load(("partition",))
    assert again.load(("topic",)) == store.load(("topic",))


def results_of(disk: Disk, later: Later[list[Outcome]]) -> Any:
    disk.ports.settle()
    return results(later)


def test_writes_after_a_large_one_wait_for_it_in_order() -> None:
    disk = Disk()
    store = disk.open()
    first = store.write([producer_ids(1000, ABSENT)])
    middle = store.write_atomic(large())
    last = store.write([producer_ids(2000, ABSENT)])
    disk.ports.settle()
    assert [type(one) for one in results(first)] == [Written]
    assert {type(one) for one in results(middle)} == {Written}
    [conflict] = results(last)
    assert isinstance(conflict, Conflict)
    assert conflict.value.next_producer_id == 1000


def test_large_write_with_a_stale_version_changes_nothing() -> None:
    disk = Disk()
    store = disk.open()
    disk.settle(store.write([producer_ids(1000, ABSENT)]))
    stale = [*large(), producer_ids(5000, ABSENT)]
    found = results_of(disk, store.write_atomic(stale))
    assert {type(one) for one in found} == {Conflict}
    assert len(found) == len(stale)
    assert partitions(store) == 0
    assert {type(one) for one in results_of(disk, store.write_atomic(large()))} == {Written}


def test_removing_a_topic_removes_its_partitions_and_notifies_watchers() -> None:
    disk = Disk()
    store = disk.open()
    version = results_of(disk, store.write_atomic(large()))[0].version
    told: list[object] = []
    store.watch(("partition",), lambda key, value, version: told.append(value))
    removal = Change(key=("topic", "t"), value=None, expected=version)
    after = [store.write([removal]), store.write_atomic(large("u"))]
    disk.ports.settle()
    assert results(after[0]) == [Written(version=ABSENT)]
    assert told[:PARTITIONS] == [None] * PARTITIONS
    assert (partitions(store), partitions(store, "u")) == (0, PARTITIONS)
    assert partitions(disk.open(disk.files.kill()), "u") == PARTITIONS


@pytest.mark.parametrize("slices", range(1, 40, 3))
def test_failed_store_fails_a_large_write_in_any_slice_and_queued_writes(slices: int) -> None:
    disk = Disk()
    store = disk.open()
    laters = [store.write_atomic(large()), store.write([producer_ids(1000, ABSENT)])]
    for _ in range(slices):
        if disk.ports.timers.next_due_ms != disk.ports.clock.monotonic_ms():
            disk.ports.jobs.run_all()
        disk.ports.timers.run_next()
    was_written = laters[0].done
    store.storage_failed()
    disk.ports.settle()
    kinds = [type(results(later)) for later in laters]
    assert kinds[was_written:] == [KafkaStorageError] * (2 - was_written)
    assert type(results_of(disk, store.write_atomic(large("u")))) is KafkaStorageError


def test_refused_append_of_a_large_write_fails_it_and_not_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    store = disk.open()
    with monkeypatch.context() as patched:
        patched.setattr(Log, "append_as_leader", lambda *_, **__: 1 // 0)
        failed = results_of(disk, store.write_atomic(large()))
    assert type(failed) is ZeroDivisionError
    assert {type(one) for one in results_of(disk, store.write_atomic(large()))} == {Written}
    assert partitions(disk.open(disk.files.kill())) == PARTITIONS


def test_store_refuses_writes_when_it_cannot_apply_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    store = disk.open()
    replay = MetadataImage.replay

    def broken(image: MetadataImage, record: Any, offset: int) -> Any:
        assert offset != LARGE, "a bug in the middle"
        return replay(image, record, offset)

    with monkeypatch.context() as patched:
        patched.setattr(MetadataImage, "replay", broken)
        laters = [store.write_atomic(large()), store.write([producer_ids(1000, ABSENT)])]
        with pytest.raises(AssertionError, match="a bug in the middle"):
            disk.ports.settle()
    laters.append(store.write([producer_ids(1000, ABSENT)]))
    disk.ports.settle()
    assert [type(results(later)) for later in laters] == [KafkaStorageError] * 3
    assert partitions(disk.open(disk.files.kill())) == PARTITIONS


@pytest.mark.parametrize("when", list(When))
def test_exception_at_any_port_call_completes_a_large_write(when: When) -> None:
    number, is_over = 0, False
    while not is_over:
        number += 1
        faults = Faults()
        disk = Disk()
        store = disk.open(faults=faults)
        faults.arm(faults.calls + number, when, MemoryError("injected"))
        first = store.write_atomic(large())
        disk.ports.settle()
        second = store.write_atomic(large("u"))
        disk.ports.settle()
        is_over = faults.is_armed
        for name, later in (("t", first), ("u", second)):
            is_written = isinstance(results(later), list)
            assert partitions(store, name) == (PARTITIONS if is_written else 0)
            found = partitions(disk.open(disk.files.kill()), name)
            assert found == PARTITIONS if is_written else found in (0, PARTITIONS)
    assert number > 3
