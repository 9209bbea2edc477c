"""plog/spark/worker_check.py: the check before the first task of a worker."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator

import pytest

from plog.spark import worker_check
from plog.spark.worker_check import CheckedPickle, WorkerError, check_worker
from plog.version import VERSION


class Reader(CheckedPickle):
    """A reader, as the data source has them."""

    def __init__(self, value: object) -> None:
        self.value = value


class Driver(Reader):
    """A reader with a value that stays in the driver."""

    def __getstate__(self) -> dict[str, object]:
        return {"value": None}


class Unreadable:
    """A value that another version cannot restore."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("not a number",)


def restored(data: bytes) -> object:
    return pickle.loads(data)  # noqa: S301 - made by the test


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    """Let each test start without an earlier check, and leave none."""
    check_worker.cache_clear()
    yield
    check_worker.cache_clear()


def test_object_is_restored_by_an_equal_worker() -> None:
    made = restored(pickle.dumps(Reader({"a": 1})))
    assert isinstance(made, Reader)
    assert made.value == {"a": 1}


def test_state_that_the_object_chooses_is_restored() -> None:
    made = restored(pickle.dumps(Driver(1)))
    assert isinstance(made, Driver)
    assert made.value is None


def test_worker_is_checked_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(Reader(1))
    restored(data)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    restored(data)


def test_other_version_is_named_before_anything_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = pickle.dumps(Reader(Unreadable()))
    monkeypatch.setattr(worker_check, "VERSION", "0.0.9")
    with pytest.raises(
        WorkerError, match=f"the driver has plog {VERSION}, but .* has plog 0.0.9; install"
    ):
        restored(data)


@pytest.mark.parametrize("name", ["crc32c", "lz4.frame", "snappy", "zstandard"])
def test_missing_codec_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    data = pickle.dumps(Reader(1))
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(WorkerError, match=f"cannot import {name.partition('.')[0]}: .* plog spark"):
        restored(data)
