"""Fetches of many partitions: equal responses, built in slices, and little work per append."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plogd.fair_queue import SLICE
from plogd.log.segment.file_records import FileRegion
from plogd.replica.fetch.fetch_reader import FetchReader
from tests.helpers.sim.sim_broker import Asked, SimBroker, create_topic, produce_request

COUNT = SLICE + 20


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", COUNT)
    return broker


def wide(
    count: int = COUNT, *, wait_ms: int = 0, min_bytes: int = 1, offset: int = 0, **fields: Any
) -> FetchRequest:
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)
        for number in range(count)
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=partitions)],
        **fields,
    )


def answered(asked: Asked | Any) -> dict[int, int]:
    """Return the number of bytes by partition."""
    response = asked.response() if isinstance(asked, Asked) else asked
    assert response.error_code == 0
    [topic] = response.responses
    assert {one.error_code for one in topic.partitions} == {0}
    return {one.partition_index: len(one.records) for one in topic.partitions}


def open_regions(monkeypatch: pytest.MonkeyPatch) -> set[FileRegion]:
    """Return the list of regions that are created from now on and not closed."""
    opened: set[FileRegion] = set()
    init, close = FileRegion.__init__, FileRegion.close

    def made(self: FileRegion, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        opened.add(self)

    def closed(self: FileRegion) -> None:
        close(self)
        opened.discard(self)

    monkeypatch.setattr(FileRegion, "__init__", made)
    monkeypatch.setattr(FileRegion, "close", closed)
    return opened


def test_wide_fetch_returns_the_same_as_narrow_ones(broker: SimBroker) -> None:
    for number in (0, SLICE, COUNT - 1):
        broker.produce("t", b"abc", partition=number)
    found = answered(broker.ask(wide(), 11))
    assert list(found) == list(range(COUNT))
    assert {number for number, size in found.items() if size} == {0, SLICE, COUNT - 1}


def test_other_clients_are_served_between_slices(broker: SimBroker) -> None:
    fetch = broker.begin(wide(), 11)
    while not fetch.is_done:
        other = broker.begin(wide(1), 11)
        assert other.is_done
        assert list(answered(other)) == [0]
        assert broker.ports.timers.run_due() or fetch.is_done
    assert len(answered(fetch)) == COUNT


@pytest.mark.parametrize("number", [0, COUNT - 1])
def test_append_ends_the_wait(broker: SimBroker, number: int) -> None:
    fetch = broker.begin(wide(wait_ms=10_000), 11)
    broker.settle()
    assert not fetch.is_done
    broker.produce("t", b"abc", partition=number)
    broker.settle()
    assert [one for one, size in answered(fetch).items() if size] == [number]
    assert len(broker.broker.replica_manager.delayed_fetches) == 0


def test_append_in_any_slice_before_the_wait_is_not_missed(broker: SimBroker) -> None:
    for passes in range(10):
        fetch = broker.begin(wide(wait_ms=10_000, offset=passes), 11)
        for _ in range(passes):
            if broker.ports.timers.next_due_ms == broker.ports.clock.monotonic_ms():
                broker.ports.timers.run_next()
        for number in range(COUNT):
            broker.begin(produce_request("t", b"abc", partition=number), 7)
        broker.settle()
        assert fetch.is_done, passes
        assert any(answered(fetch).values())


def test_bytes_of_several_partitions_are_added(broker: SimBroker) -> None:
    broker.produce("t", b"x" * 100, partition=5)
    fetch = broker.begin(wide(wait_ms=10_000, min_bytes=400), 11)
    broker.settle()
    broker.produce("t", b"x" * 100, partition=6)
    broker.settle()
    assert not fetch.is_done
    broker.produce("t", b"x" * 100, partition=SLICE)
    broker.settle()
    found = answered(fetch)
    assert [number for number, size in found.items() if size] == [5, 6, SLICE]


def test_deadline_ends_the_wait(broker: SimBroker) -> None:
    fetch = broker.begin(wide(wait_ms=1000, min_bytes=1 << 20), 11)
    broker.settle()
    broker.produce("t", b"abc", partition=7)
    broker.ports.advance(1010)
    assert [number for number, size in answered(fetch).items() if size] == [7]


def test_disconnected_client_leaves_nothing_behind(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(COUNT):
        broker.produce("t", b"abc", partition=number)
    opened = open_regions(monkeypatch)
    passes = 0
    while True:
        fetch = broker.begin(wide(wait_ms=10_000, min_bytes=1 << 20), 11)
        for _ in range(passes):
            broker.ports.timers.run_next()
        is_waiting = len(broker.broker.replica_manager.delayed_fetches) == 1
        fetch.cancel()
        broker.settle()
        assert not opened, passes
        assert len(broker.broker.replica_manager.delayed_fetches) == 0
        if is_waiting:
            break
        passes += 1
    assert passes > COUNT // SLICE


@pytest.mark.parametrize("repeated", [2, COUNT])
def test_partition_named_repeatedly_is_read_once(
    broker: SimBroker, repeated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("t", b"abc")
    reads: list[object] = []
    read_one = FetchReader._read_one

    def counted(self: FetchReader, *args: Any) -> Any:
        reads.append(args)
        return read_one(self, *args)

    monkeypatch.setattr(FetchReader, "_read_one", counted)
    request = wide(1)
    request.topics[0].partitions *= repeated
    assert list(answered(broker.ask(request, 4))) == [0]
    assert len(reads) == 1


@pytest.mark.parametrize("count", [50, COUNT])
def test_append_costs_a_waiting_fetch_one_read(
    broker: SimBroker, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.begin(wide(count, wait_ms=100_000, min_bytes=1 << 20), 11)
    broker.settle()
    reads: list[int] = []
    read_one = FetchReader._read_one

    def counted(self: FetchReader, item: Any, *args: Any) -> Any:
        reads.append(item.request.partition)
        return read_one(self, item, *args)

    monkeypatch.setattr(FetchReader, "_read_one", counted)
    for number in (3, 4, 3):
        broker.produce("t", b"abc", partition=number)
    assert reads == [3, 4, 3]


def test_wide_session_answers_only_what_changed(broker: SimBroker) -> None:
    opened = broker.ask(wide(session_epoch=0), 11)
    assert opened.session_id
    broker.produce("t", b"abc", partition=SLICE)
    rest: dict[str, Any] = {"max_wait_ms": 0, "max_bytes": 1 << 20}
    empty = FetchRequest(session_id=opened.session_id, session_epoch=1, topics=[], **rest)
    found = broker.ask(empty, 11)
    assert found.session_id == opened.session_id
    assert list(answered(found)) == [SLICE]


def test_wide_session_of_unknown_partitions_is_not_opened(broker: SimBroker) -> None:
    response = broker.ask(wide(COUNT + 1, session_epoch=0), 11)
    assert response.session_id == 0
    codes = [one.error_code for one in response.responses[0].partitions]
    assert codes == [0] * COUNT + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.broker.fetch_sessions.partition_count == 0


def test_refusal_names_every_partition(broker: SimBroker) -> None:
    request = wide(session_epoch=0)
    request.replica_id = 7
    [topic] = broker.ask(request, 11).responses
    assert [one.error_code for one in topic.partitions] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ] * COUNT
