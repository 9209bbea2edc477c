"""Whole requests to a whole broker in memory: a response, or a reason to close the connection.

Frames have arbitrary content. The broker reports exceptions that a handler does not expect as bugs,
which fail the target. It serves many inputs, so that requests find the state that others left.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.wire.header import RequestHeader, encode_request
from plogd.apis.api_table import HANDLERS
from plogd.apis.dispatch import CloseConnection
from plogd.ports import Later
from tests.fuzz.target import Target
from tests.helpers.group.group_frames import stable
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.unit.wire.filled import filled

_INPUTS_PER_BROKER = 300
_MAX_TOPICS = 30


class _World:
    """A broker with a topic and a group, recreated from time to time."""

    def __init__(self) -> None:
        self._broker: SimBroker | None = None
        self._inputs = 0

    def broker(self) -> SimBroker:
        self._inputs += 1
        if self._broker is None or self._is_worn():
            self._inputs = 0
            self._broker = SimBroker(num_partitions=1, offsets_topic_num_partitions=2).start()
            create_topic(self._broker, "t", 2)
            self._broker.produce("t", b"a", b"b")
            stable(self._broker)
        return self._broker

    def _is_worn(self) -> bool:
        assert self._broker is not None
        topics = len(list(self._broker.broker.cache.topics()))
        return self._inputs > _INPUTS_PER_BROKER or topics > _MAX_TOPICS


_WORLD = _World()


def fuzz(data: bytes) -> None:
    """Let the broker handle a frame and everything that follows from it."""
    broker = _WORLD.broker()
    try:
        dispatched = broker.dispatch_frame(data)
    except CloseConnection:
        dispatched = None
    broker.settle()
    if dispatched is not None and isinstance(dispatched.result, Later):
        dispatched.result.then(_close, lambda error: None)
        dispatched.result.cancel()
    elif dispatched is not None:
        _close(dispatched.result)
    bugs, broker.bugs[:] = list(broker.bugs), []
    if bugs:
        raise AssertionError(bugs[0][0]) from bugs[0][1]


def _close(parts: object) -> None:
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, bytes | memoryview):
            part.close()


def _seeds() -> Iterator[bytes]:
    for index, row in enumerate(HANDLERS):
        for version in {row.first_version, row.last_version}:
            message = filled(row.request, version, index, long=False)
            header = RequestHeader(row.api_key, version, 1, "fuzz")
            yield encode_request(header, message)[4:]
            yield encode_request(header, row.request())[4:]


TARGET = Target(name="dispatch", fuzz=fuzz, seeds=_seeds)
