"""Responses copied to a standard transport, which TLS requires."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import StringTransport

from plogd.apis.encoded_response import EncodedResponse, SharedAnswer
from plogd.log.segment.file_records import FileRegion
from plogd.net.connection import Connection
from plogd.net.copying_output import PIECE_BYTES, CopyingOutput
from tests.helpers.net_parts import (
    ScriptedDispatch,
    WatchedFile,
    make_connections,
    make_context,
)
from tests.helpers.sim.sim_ports import SimPorts


class Harness:
    """An output over a transport that records writes."""

    def __init__(self, path: Path) -> None:
        self.ports = SimPorts()
        self.shared = make_connections(ScriptedDispatch(), self.ports)
        self.transport = StringTransport()
        self.read_on = 0
        self.wire = CopyingOutput(self.transport, self.shared, self._on_reading)
        self.wire.connection = Connection(self.shared, make_context(), self.wire)
        self.file = WatchedFile(path, os.urandom(300_000))

    def _on_reading(self) -> None:
        self.read_on += 1

    def region(self, position: int, nbytes: int) -> FileRegion:
        return FileRegion(self.file, position, nbytes)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "0.log")


def test_output_is_the_only_streaming_producer_of_its_transport(harness: Harness) -> None:
    assert harness.transport.producer is harness.wire
    assert harness.transport.streaming


def test_response_is_written_in_order_and_its_regions_in_pieces(harness: Harness) -> None:
    harness.wire.write_answer([b"head", harness.region(5, 200_000), memoryview(b"tail")])
    assert harness.transport.value() == b"head" + harness.file.content[5:200_005] + b"tail"
    assert max(length for _, length in harness.file.reads) == PIECE_BYTES
    assert harness.file.holders == 1
    assert harness.wire.buffered_bytes == 0
    assert harness.shared.bytes_out == 200_008


def test_responses_of_a_turn_are_written_at_its_end(harness: Harness) -> None:
    harness.wire.cork()
    harness.wire.write_answer([b"a"])
    assert harness.transport.value() == b""
    assert harness.wire.buffered_bytes == 1
    harness.wire.uncork()
    assert harness.transport.value() == b"a"


def test_nothing_is_written_while_the_transport_is_paused(harness: Harness) -> None:
    harness.wire.pauseProducing()
    harness.wire.write_answer([b"a", harness.region(0, 10)])
    assert harness.transport.value() == b""
    assert harness.file.holders == 2
    harness.wire.resumeProducing()
    assert harness.transport.value() == b"a" + harness.file.content[:10]
    assert harness.file.holders == 1


def test_unsent_bytes_are_counted_without_file_regions(harness: Harness) -> None:
    responses = harness.shared.responses
    harness.wire.pauseProducing()
    harness.wire.write_answer([b"abc", harness.region(0, 100_000)])
    assert responses.used_bytes == 3
    harness.wire.resumeProducing()
    assert responses.used_bytes == 0
    assert harness.wire.sent_bytes == 100_003
    harness.wire.pauseProducing()
    harness.wire.write_answer([b"abc"])
    harness.wire.lost()
    harness.wire.connection.lost()
    assert responses.used_bytes == 0


def test_shared_response_counts_once_and_until_it_is_handed_over(harness: Harness) -> None:
    memory = harness.shared.responses
    response = EncodedResponse([bytes(100_000), bytes(50_000)])
    other = object()
    memory.share(other, [response], 150_000)  # type: ignore[arg-type]  # it only holds it
    memory.count(other, 150_000)  # type: ignore[arg-type]
    harness.wire.pauseProducing()
    harness.wire.write_answer([harness.region(0, 1_000), b"own"])
    harness.wire.write_answer(SharedAnswer([b"head", *response.parts], response))
    harness.wire.write_answer([b"own, too"])
    assert memory.used_bytes == 150_000 + len(b"own" + b"head" + b"own, too")
    harness.wire.resumeProducing()
    assert memory.used_bytes == 150_000
    memory.forget(other)  # type: ignore[arg-type]
    assert memory.used_bytes == 0


def test_shared_response_of_a_lost_connection_is_not_counted(harness: Harness) -> None:
    response = EncodedResponse([bytes(100_000)])
    harness.wire.pauseProducing()
    harness.wire.write_answer(SharedAnswer([b"head", *response.parts], response))
    assert harness.shared.responses.used_bytes == 100_004
    harness.wire.lost()
    harness.wire.resumeProducing()
    harness.wire.close()
    assert harness.shared.responses.used_bytes == 0


def test_cold_piece_is_read_by_a_job_and_later_pieces_wait(harness: Harness) -> None:
    harness.file.is_cached = False
    harness.wire.write_answer([b"head", harness.region(0, 100_000)])
    harness.wire.write_answer([b"next"])
    assert harness.transport.value() == b"head"
    harness.ports.jobs.run_all()
    assert harness.transport.value() == b"head" + harness.file.content[:100_000] + b"next"
    assert harness.file.holders == 1


def test_close_waits_until_everything_is_written(harness: Harness) -> None:
    harness.wire.pauseProducing()
    harness.wire.write_answer([b"last words"])
    harness.wire.close()
    assert not harness.transport.disconnecting
    harness.wire.resumeProducing()
    assert harness.transport.value() == b"last words"
    assert harness.transport.producer is None
    assert harness.transport.disconnecting


def test_second_close_has_no_effect(harness: Harness) -> None:
    harness.wire.close()
    harness.wire.close()
    harness.wire.write_answer([harness.region(0, 5)])
    assert harness.transport.value() == b""
    assert harness.file.holders == 1


def test_lost_connection_closes_its_files_exactly_once(harness: Harness) -> None:
    harness.file.is_cached = False
    harness.wire.write_answer([harness.region(0, 100_000), harness.region(0, 5)])
    harness.wire.lost()
    harness.wire.lost()
    assert harness.file.holders == 2, "the job is still reading"
    harness.ports.jobs.run_all()
    assert harness.file.holders == 1
    assert harness.transport.value() == b""
    harness.wire.write_answer([harness.region(0, 5)])
    assert harness.file.holders == 1


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("is_cut", [True, False])
def test_read_error_aborts_the_connection(
    harness: Harness, log_lines: list[str], *, is_cached: bool, is_cut: bool
) -> None:
    harness.file.is_cached = is_cached
    region = harness.region(200_000, 100_000)
    if is_cut:
        harness.file.truncate(200_010)
    else:
        harness.file.read_error = OSError(errno.EIO, "I/O error")
    harness.wire.write_answer([region])
    harness.wire.write_answer([b"never sent"])
    harness.ports.settle()
    assert harness.transport.disconnected or harness.transport.disconnecting
    assert len(log_lines) == 1
    assert "cannot send to 192.0.2.1" in log_lines[0]
    assert b"never sent" not in harness.transport.value()
    harness.wire.lost()
    assert harness.file.holders == 1


def test_abort_of_a_lost_connection_has_no_effect(harness: Harness) -> None:
    calls: list[str] = []
    transport: Any = harness.transport
    transport.abortConnection = lambda: calls.append("abort")
    harness.wire.abort()
    harness.wire.lost()
    harness.ports.settle()
    assert calls == []


def test_bytes_received_while_paused_are_delivered_later(harness: Harness) -> None:
    harness.wire.set_reading(False)
    assert harness.transport.producerState == "paused"
    harness.wire.set_reading(True)
    assert harness.transport.producerState == "producing"
    assert harness.read_on == 0
    harness.ports.settle()
    assert harness.read_on == 1


def test_peer_has_left_is_false_before_the_connection_is_lost(harness: Harness) -> None:
    assert not harness.wire.peer_has_left()
