"""The files between the socket and the log: few enough to read in one sitting.

A file counts if one of its functions is on the call stack when the log file is written or a range
of it is found. docs/tour.md describes all of these files.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.schema import ApiMessage
from plogd.config.listener import Listener
from plogd.config.network_settings import NetworkSettings
from plogd.log.segment.file_records import FileRegion
from plogd.net.connections import Connections
from plogd.net.listeners import Listeners
from tests.helpers.net_parts import Pump, open_all
from tests.helpers.sim.sim_broker import SimBroker, create_topic, produce_request
from tests.helpers.sim.sim_file import SimFile

ROOT = Path(__file__).parents[2]
PRODUCE_MAX, FETCH_MAX = 13, 12
_PRODUCT = re.compile(r"/((?:plog|plogd)/[a-z_/0-9]+\.py)$")


class Site:
    """A broker with topic ``t`` behind a real port, and a client."""

    def __init__(self) -> None:
        self.broker = SimBroker(num_partitions=1).start()
        create_topic(self.broker, "t", 1)
        self.pump = Pump()
        ports = self.broker.ports.bundle()
        self.shared = Connections(self.broker.dispatch, NetworkSettings(), ports)
        self.listeners = Listeners(self.pump.reactor, self.shared)
        listener = Listener(name="PLAINTEXT", host="127.0.0.1", port=0, protocol="PLAINTEXT")
        [bound] = open_all(self.listeners, [listener])
        self.client = socket.create_connection(("127.0.0.1", bound.port))

    def ask(self, message: ApiMessage, version: int) -> bytes:
        """Send a request, and return the response."""
        self.client.sendall(
            encode_request(RequestHeader(message.api_key, version, 1, "c"), message)
        )
        ports = self.broker.ports
        (size,) = struct.unpack(">i", self.pump.exchange(self.client, 4, ports))
        return self.pump.exchange(self.client, size, ports)

    def close(self) -> None:
        self.client.close()
        self.listeners.close()
        self.shared.abort_all()
        self.pump.until(lambda: not len(self.shared), self.broker.ports)
        self.listeners.release()
        self.pump.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def _files_on_stack() -> set[str]:
    frame = sys._getframe(1)
    files = set()
    while frame is not None:
        if found := _PRODUCT.search(frame.f_code.co_filename):
            files.add(found[1])
        frame = frame.f_back  # type: ignore[assignment]
    return files


def _watch(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[set[str]]:
    """Return a list that gets the files on the stack of each call of a method."""
    original: Callable[..., Any] = getattr(owner, name)
    calls: list[set[str]] = []

    def watched(*arguments: Any, **keywords: Any) -> Any:
        calls.append(_files_on_stack())
        return original(*arguments, **keywords)

    monkeypatch.setattr(owner, name, watched)
    return calls


def _fetch(offset: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def test_produced_batch_and_fetch_cross_few_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask(produce_request("t", b"first"), 9)  # Opens files.
    appends = _watch(monkeypatch, SimFile, "append")
    site.ask(produce_request("t", b"second", acks=1), 9)
    [produced] = [files for files in appends if "plogd/net/transport.py" in files]
    regions = _watch(monkeypatch, FileRegion, "__init__")
    assert b"second" in site.ask(_fetch(1), 11)
    [fetched] = regions
    for files, most in ((produced, PRODUCE_MAX), (fetched, FETCH_MAX)):
        assert len(files) <= most, sorted(files)
        assert "plogd/log/segment/file_records.py" in files
    tour = (ROOT / "docs/tour.md").read_text()
    named = {Path(name).name for name in re.findall(r"`([a-z_/0-9]+\.py)`", tour)}
    assert {Path(name).name for name in produced | fetched} <= named
