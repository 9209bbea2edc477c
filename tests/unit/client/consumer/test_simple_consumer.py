"""SimpleConsumer returns exact ranges of fetched batches; test_range_reader.py covers fetching."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.errors import ClosedError, ConfigError, CorruptRecords
from plog.client.simple import SimpleConsumer
from plog.records.control import ControlType
from plog.types import TopicPartition
from tests.unit.client.consumer.test_aborted_transactions import marker
from tests.unit.client.consumer.test_completed_fetch import batch

T0 = TopicPartition("t", 0)
Log = list[bytes]


@pytest.fixture
def of_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Log], SimpleConsumer]]:
    """Yield a function that makes a consumer of a log; each fetch returns several batches of it."""
    made: list[SimpleConsumer] = []

    def make(log: Log, together: int = 2, **options: Any) -> SimpleConsumer:
        consumer = SimpleConsumer(bootstrap_servers="b:1", **options)
        made.append(consumer)

        async def fetch(partition: TopicPartition, position: int, stop: int) -> CompletedFetch:
            assert partition == T0 and position < stop
            first = next(
                number
                for number, one in enumerate(log)
                if int.from_bytes(one[:8], "big") + int.from_bytes(one[23:27], "big") >= position
            )
            data = b"".join(log[first : first + together])
            return CompletedFetch(T0, position, split_batches(T0, position, data), ReadingRules())

        monkeypatch.setattr(consumer._reader, "fetch", fetch)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


LOG = [
    batch(0, 1, 2),
    batch(3, 4),
    batch(7, 9),
    marker(10, 4000, ControlType.COMMIT),
    batch(11, 12, 13),
]
OFFSETS = [0, 1, 2, 3, 4, 7, 9, 11, 12, 13]


@pytest.mark.parametrize("together", [1, 2, 5])
def test_records_returns_exactly_the_range(
    of_log: Callable[..., SimpleConsumer], together: int
) -> None:
    consumer = of_log(LOG, together)
    for start in range(15):
        for stop in range(15):
            records = consumer.records(T0, start, stop)
            assert [record.offset for record in records] == [
                offset for offset in OFFSETS if start <= offset < stop
            ]


@pytest.mark.parametrize("max_records", [1, 2, 3, 100])
@pytest.mark.parametrize("together", [1, 2, 5])
def test_arrow_batches_return_the_same_range(
    of_log: Callable[..., SimpleConsumer], together: int, max_records: int
) -> None:
    pytest.importorskip("pyarrow")
    consumer = of_log(LOG, together)
    for start in range(14):
        for stop in range(start, 15):
            found = consumer.arrow_batches(T0, start, stop, max_records=max_records)
            pieces = [piece["offset"].to_pylist() for piece in found]
            offsets = [offset for piece in pieces for offset in piece]
            assert offsets == [x for x in OFFSETS if start <= x < stop]
            assert all(len(piece) == max_records for piece in pieces[:-1])


def test_records_before_corruption_are_returned(of_log: Callable[..., SimpleConsumer]) -> None:
    damaged = bytearray(batch(3, 4))
    damaged[-1] ^= 1
    consumer = of_log([batch(0, 1, 2), bytes(damaged)])
    records = consumer.records(T0, 0, 5)
    assert [next(records).offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CorruptRecords, match="offsets 3 to 4"):
        next(records)


def test_columns_before_corruption_are_returned(of_log: Callable[..., SimpleConsumer]) -> None:
    pytest.importorskip("pyarrow")
    damaged = bytearray(batch(3, 4))
    damaged[-1] ^= 1
    for together in (1, 2):
        batches = of_log([batch(0, 1, 2), bytes(damaged)], together).arrow_batches(T0, 0, 5)
        assert next(batches)["offset"].to_pylist() == [0, 1, 2]
        with pytest.raises(CorruptRecords, match="offsets 3 to 4"):
            next(batches)


def test_group_id_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group\.id=g: a SimpleConsumer does not support groups"):
        SimpleConsumer(bootstrap_servers="b:1", group_id="g")


def test_closed_consumer_raises_closed_error() -> None:
    consumer = SimpleConsumer(bootstrap_servers="b:1")
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError, match="create a new one"):
        list(consumer.records(T0, 0, 1))


def test_import_does_not_load_a_reactor() -> None:
    code = (
        "import sys; from plog.client.simple import SimpleConsumer; "
        "SimpleConsumer(bootstrap_servers='b:1'); "
        "print([name for name in sys.modules if name.startswith(('twisted', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_partition_may_be_a_plain_pair(of_log: Callable[..., SimpleConsumer]) -> None:
    pair: Any = ("t", 0)
    assert [record.offset for record in of_log(LOG).records(pair, 0, 2)] == [0, 1]
    with pytest.raises(TypeError, match="is not a TopicPartition"):
        next(of_log(LOG).records("t", 0, 2))  # type: ignore[arg-type]


def test_max_records_must_be_positive(of_log: Callable[..., SimpleConsumer]) -> None:
    with pytest.raises(ValueError, match="max_records is 0"):
        next(of_log(LOG).arrow_batches(T0, 0, 2, max_records=0))
