"""A worker keeps the consumer of its last task."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.errors import ClosedError
from plog.spark.reader import worker_consumers
from plog.spark.reader.worker_consumers import keep_consumer, take_consumer

ONE = {"bootstrap.servers": "a:1"}
OTHER = {"bootstrap.servers": "b:1"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: dict[tuple[tuple[str, str], ...], SimpleConsumer] = {}
    monkeypatch.setattr(worker_consumers, "_kept", kept)
    yield
    for consumer in kept.values():
        consumer.close()


def is_closed(consumer: SimpleConsumer) -> bool:
    # Without partitions, an open consumer sends no request.
    try:
        consumer.end_offsets([])
    except ClosedError:
        return True
    return False


def test_kept_consumer_is_taken_once() -> None:
    consumer = take_consumer(ONE)
    keep_consumer(ONE, consumer)
    assert take_consumer(ONE) is consumer
    assert take_consumer(ONE) is not consumer


def test_consumer_with_other_settings_is_replaced_and_closed() -> None:
    consumer = take_consumer(ONE)
    keep_consumer(ONE, consumer)
    other = take_consumer(OTHER)
    assert other is not consumer
    assert not is_closed(consumer)
    keep_consumer(OTHER, other)
    assert is_closed(consumer)
    assert take_consumer(OTHER) is other
