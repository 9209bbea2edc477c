"""Fetch and ListOffsets of read_committed clients, on a log that contains transactions.

The broker has no transaction coordinator yet, so the batches are appended to the log directly.
"""

from __future__ import annotations

from typing import Any

import pytest

from plog.records.batch import iter_batches
from plog.records.control import ControlType
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plogd.log.batch_validator import AppendOrigin
from tests.helpers.log.log_data import marker_batch
from tests.helpers.sim.sim_broker import SimBroker, create_topic, fetch_request, records_of

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Site:
    """A broker with a topic, and producers that write transactions to it."""

    def __init__(self) -> None:
        self.broker = SimBroker().start()
        create_topic(self.broker, "t", 2)
        self._sequences: dict[int, int] = {}

    def send(self, producer_id: int, *values: bytes, transactional: bool = True) -> None:
        """Append a batch of the producer's open transaction."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        self._append(
            records_of(
                values,
                producer_id=producer_id,
                producer_epoch=1,
                base_sequence=sequence,
                is_transactional=transactional,
            )
        )

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Append a marker."""
        control_type = ControlType.COMMIT if commit else ControlType.ABORT
        self._append(marker_batch(0, control_type, producer_id=producer_id), by_coordinator=True)

    def _append(self, batch: bytes, *, by_coordinator: bool = False) -> None:
        partition = self.broker.broker.replica_manager.partition("t", 0)
        origin = AppendOrigin.COORDINATOR if by_coordinator else AppendOrigin.CLIENT
        partition.log.append_as_leader(
            memoryview(bytearray(batch)),
            leader_epoch=partition.leader_epoch,
            now_ms=self.broker.ports.clock.now_ms(),
            origin=origin,
        )

    def fetch(self, offset: int = 0, *, level: int = READ_COMMITTED, version: int = 11) -> Any:
        self.broker.settle()
        return self.broker.fetch("t", offset, isolation_level=level, version=version)

    def offset_at(self, timestamp: int, level: int) -> int:
        request = ListOffsetsRequest(
            isolation_level=level,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0, timestamp=timestamp, current_leader_epoch=-1
                        )
                    ],
                )
            ],
        )
        self.broker.settle()
        found = self.broker.ask(request, 7).topics[0].partitions[0]
        assert found.error_code == 0
        return int(found.offset)


def _aborted(answer: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions]


def _last_offset(answer: Any) -> int:
    return [header.last_offset for _, header in iter_batches(answer.records)][-1]


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_fetch_ends_at_the_last_stable_offset(version: int) -> None:
    site = Site()
    site.send(1, b"a", b"b", transactional=False)
    site.send(2, b"open")
    site.send(1, b"c", transactional=False)
    answer = site.fetch(version=version)
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 2)
    assert _last_offset(answer) == 1
    everything = site.fetch(level=READ_UNCOMMITTED, version=version)
    assert (everything.high_watermark, everything.last_stable_offset) == (4, 2)
    assert _last_offset(everything) == 3
    assert everything.aborted_transactions is None


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_fetch_lists_the_aborted_transactions_of_its_records(version: int) -> None:
    site = Site()
    site.send(1, b"a")
    site.send(2, b"b")
    site.end(2, commit=True)
    site.end(1, commit=False)
    site.send(2, b"c")
    site.end(2, commit=False)
    answer = site.fetch(version=version)
    assert (answer.last_stable_offset, _last_offset(answer)) == (6, 5)
    assert _aborted(answer) == [(1, 0), (2, 4)]
    assert _aborted(site.fetch(4, version=version)) == [(2, 4)]


def test_several_partitions_have_their_own_aborted_transactions() -> None:
    site = Site()
    site.send(1, b"a")
    site.end(1, commit=False)
    site.broker.produce("t", b"plain", partition=1)
    request = FetchRequest(
        isolation_level=READ_COMMITTED,
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=number, partition_max_bytes=1 << 20)
                    for number in (0, 1)
                ],
            )
        ],
    )
    first, second = site.broker.ask(request, 11).responses[0].partitions
    assert (_aborted(first), _aborted(second)) == ([(1, 0)], [])


def test_long_poll_waits_for_the_marker_of_a_transaction() -> None:
    site = Site()
    asked = site.broker.begin(
        fetch_request("t", max_wait_ms=500, isolation_level=READ_COMMITTED), 11
    )
    site.send(1, b"a")
    site.broker.settle()
    assert not asked.is_done
    site.end(1, commit=True)
    assert not asked.is_done, "the marker is not durable yet"
    site.broker.settle()
    [partition] = asked.response().responses[0].partitions
    assert (partition.last_stable_offset, _last_offset(partition)) == (2, 1)


def test_long_poll_that_counts_bytes_ignores_undecided_records() -> None:
    site = Site()
    site.send(1, b"a", transactional=False)
    wanted = len(site.fetch().records) + 1
    request = fetch_request("t", max_wait_ms=500, min_bytes=wanted, isolation_level=READ_COMMITTED)
    asked = site.broker.begin(request, 11)
    site.send(2, b"b")
    site.broker.settle()
    assert not asked.is_done
    site.end(2, commit=False)
    site.broker.settle()
    [partition] = asked.response().responses[0].partitions
    assert _aborted(partition) == [(2, 1)]


def test_latest_offset_depends_on_the_isolation_level() -> None:
    site = Site()
    site.send(1, b"a")
    site.send(2, b"b", transactional=False)
    assert site.offset_at(-1, READ_UNCOMMITTED) == 2
    assert site.offset_at(-1, READ_COMMITTED) == 0
    site.end(1, commit=True)
    assert site.offset_at(-1, READ_COMMITTED) == 3


def test_lookup_by_time_does_not_find_undecided_records() -> None:
    site = Site()
    site.send(1, b"a")
    assert site.offset_at(0, READ_UNCOMMITTED) == 0
    assert site.offset_at(0, READ_COMMITTED) == -1
    site.end(1, commit=True)
    assert site.offset_at(0, READ_COMMITTED) == 0
