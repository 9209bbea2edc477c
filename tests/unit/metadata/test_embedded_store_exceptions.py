"""Unexpected exceptions in the embedded store: every write completes with its true outcome."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.metadata.embedded_store import EmbeddedStore
from plogd.metadata.image import MetadataImage
from plogd.metadata.store import Change, Outcome, Written
from plogd.ports import Later
from tests.helpers.injection import Faults, When
from tests.unit.metadata.test_embedded_store import Disk, topic_changes


def _topics(*names: str) -> list[list[Change]]:
    return [topic_changes(name, name.encode() * 16) for name in names]


def _names(store: EmbeddedStore) -> set[object]:
    return {key[1] for key in store.load(("topic",))}


def _outcomes(laters: list[Later[list[Outcome]]]) -> list[object]:
    """The outcomes of each write, or the exception it failed with."""
    found: list[object] = []
    for later in laters:
        assert later.done, "a write has no outcome"
        later.then(found.append, found.append)
    return found


def test_unexpected_error_of_one_write_leaves_the_others_of_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    store = disk.open()
    records_for = MetadataImage.records_for

    def broken(image: MetadataImage, change: Change, new: Any) -> Any:
        if change.key[1] == "b":
            raise ZeroDivisionError
        return records_for(image, change, new)

    monkeypatch.setattr(MetadataImage, "records_for", broken)
    laters = [store.write_atomic(changes) for changes in _topics("a", "b", "c")]
    disk.ports.settle()
    first, second, third = _outcomes(laters)
    assert isinstance(second, ZeroDivisionError)
    for outcome in (first, third):
        assert isinstance(outcome, list)
        assert {type(one) for one in outcome} == {Written}
    assert _names(store) == _names(disk.open(disk.files.kill())) == {"a", "c"}


def test_unexpected_error_of_an_append_fails_its_group_and_not_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    store = disk.open()
    with monkeypatch.context() as patched:
        patched.setattr(Log, "append_as_leader", lambda *_, **__: 1 // 0)
        laters = [store.write(changes) for changes in _topics("a", "b")]
        disk.ports.settle()
    assert [type(one) for one in _outcomes(laters)] == [ZeroDivisionError] * 2
    [again] = _topics("a")
    disk.settle(store.write(again))
    assert _names(store) == _names(disk.open(disk.files.kill())) == {"a"}


def test_store_refuses_writes_when_it_cannot_apply_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    store = disk.open()
    in_flight, queued, late = _topics("a", "a", "c")
    with monkeypatch.context() as patched:
        patched.setattr(MetadataImage, "replay", lambda *_: 1 // 0)
        laters = [store.write(in_flight), store.write(queued)]
        with pytest.raises(ZeroDivisionError):
            disk.ports.settle()
    laters.append(store.write(late))
    assert [type(one) for one in _outcomes(laters)] == [KafkaStorageError] * 3
    assert _names(disk.open(disk.files.kill())) == {"a"}


@pytest.mark.parametrize("when", list(When))
def test_exception_at_any_port_call_completes_every_write(when: When) -> None:
    number = 0
    is_over = False
    while not is_over:
        number += 1
        faults = Faults()
        disk = Disk()
        store = disk.open(faults=faults)
        faults.arm(faults.calls + number, when, MemoryError("injected"))
        laters = [store.write_atomic(changes) for changes in _topics("a", "b")]
        disk.ports.settle()
        laters += [store.write_atomic(changes) for changes in _topics("c")]
        disk.ports.settle()
        is_over = faults.is_armed
        written = {
            name
            for name, found in zip("abc", _outcomes(laters), strict=True)
            if isinstance(found, list)
        }
        assert _names(store) == written
        names = _names(disk.open(disk.files.kill()))
        assert names == written if not store.has_failed else names >= written
    assert number > 3
