"""Memory of unsent responses: each connection's own bytes, and shared responses once."""

from __future__ import annotations

import random
from typing import cast

import pytest

from plogd.apis.encoded_response import EncodedResponse, SharedAnswer
from plogd.net.open_connection import OpenConnection
from plogd.net.response_memory import ResponseMemory
from plogd.net.shared_output import SharedOutput

KIB = 1 << 10


def connection() -> OpenConnection:
    return cast(OpenConnection, object())


def shared(nbytes: int = 100 * KIB) -> EncodedResponse:
    return EncodedResponse([bytes(nbytes)])


def test_shared_response_counts_once_however_many_connections_send_it() -> None:
    memory = ResponseMemory(1 << 20, lambda: None)
    response = shared()
    connections = [connection() for _ in range(50)]
    for one in connections:
        memory.share(one, [response], response.nbytes)
        memory.count(one, response.nbytes + 10)
    assert memory.used_bytes == response.nbytes + 50 * 10
    assert len(memory) == 50
    assert memory.largest_first()[0][1] == response.nbytes + 10
    for one in connections[:25]:
        memory.share(one, (), 0)
        memory.count(one, 0)
    assert memory.used_bytes == response.nbytes + 25 * 10
    for one in connections[25:]:
        memory.forget(one)
    assert memory.used_bytes == len(memory) == 0
    assert (memory._holders, memory._shared) == ({}, {})


def test_different_responses_count_each() -> None:
    """As when topics change while clients do not read: each has the list of another moment."""
    memory = ResponseMemory(150 * KIB, lambda: full.append(True))
    full: list[bool] = []
    for _ in range(2):
        response, one = shared(), connection()
        memory.share(one, [response], response.nbytes)
        memory.count(one, response.nbytes)
    assert memory.used_bytes == 200 * KIB
    assert full


@pytest.mark.parametrize("seed", range(20))
def test_used_bytes_are_own_bytes_and_each_shared_response_whatever_is_sent(seed: int) -> None:
    chance = random.Random(seed)
    memory = ResponseMemory(1 << 30, lambda: None)
    responses = [shared(chance.randrange(1, 100)) for _ in range(3)]
    streams = {connection(): _Stream(memory) for _ in range(5)}
    for _ in range(300):
        one, stream = chance.choice(list(streams.items()))
        match chance.randrange(4):
            case 0:
                stream.write(chance.randrange(1, 50), None)
            case 1:
                stream.write(chance.randrange(1, 20), chance.choice(responses))
            case _:
                stream.sent += chance.randrange(stream.written - stream.sent + 1)
        stream.output.report(one, stream.sent)
        memory.count(one, stream.written - stream.sent)
        held = {x for each in streams.values() for x, _, end in each.shared if end > each.sent}
        own = sum(each.own_bytes() for each in streams.values())
        assert memory.used_bytes == own + sum(x.nbytes for x in held)
    for one, stream in streams.items():
        stream.output.clear(one)
        memory.forget(one)
    assert memory.used_bytes == 0


class _Stream:
    """The bytes written to one connection, and how many of them were sent."""

    def __init__(self, memory: ResponseMemory) -> None:
        self.output = SharedOutput(memory)
        self.shared: list[tuple[EncodedResponse, int, int]] = []
        self.written = self.sent = 0

    def write(self, own_bytes: int, response: EncodedResponse | None) -> None:
        self.written += own_bytes
        if response is not None:
            start = self.written
            self.written += response.nbytes
            answer = SharedAnswer([bytes(own_bytes), *response.parts], response)
            self.output.add(answer, self.written)
            self.shared.append((response, start, self.written))

    def own_bytes(self) -> int:
        left = self.written - self.sent
        return left - sum(max(0, end - max(start, self.sent)) for _, start, end in self.shared)
