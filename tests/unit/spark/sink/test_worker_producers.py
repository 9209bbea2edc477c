"""A worker keeps the producer of its last task, unless the task failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plog.client.errors import ClosedError
from plog.client.faces.blocking import Producer
from plog.spark.sink import worker_producers
from plog.spark.sink.worker_producers import worker_producer

ONE = {"bootstrap.servers": "localhost:1"}
OTHER = {"bootstrap.servers": "localhost:2"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: dict[tuple[tuple[str, str], ...], Producer] = {}
    monkeypatch.setattr(worker_producers, "_kept", kept)
    yield
    for producer in kept.values():
        producer.close()


def is_closed(producer: Producer) -> bool:
    try:
        producer.flush()
    except ClosedError:
        return True
    return False


def used(settings: dict[str, str]) -> Producer:
    with worker_producer(settings) as producer:
        return producer


def test_producer_is_kept_for_the_next_task() -> None:
    first = used(ONE)
    assert used(dict(ONE)) is first
    assert not is_closed(first)


def test_producer_is_closed_when_the_settings_change() -> None:
    first = used(ONE)
    second = used(OTHER)
    assert second is not first
    assert is_closed(first)
    assert not is_closed(second)


def test_producer_of_a_failed_task_is_closed_and_replaced() -> None:
    first = used(ONE)
    with pytest.raises(ZeroDivisionError), worker_producer(ONE):
        1 / 0  # noqa: B018 - fails
    assert is_closed(first)
    assert used(ONE) is not first
