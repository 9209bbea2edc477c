"""The page /metrics, which is produced in slices."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from plogd.http.http_server import HttpFactory, Page
from plogd.http.metrics_page import KEEP_MS, LINES_PER_TURN, TEXTS_MAX, MetricsPage
from tests.helpers.http_client import HttpClient
from tests.helpers.sim.sim_ports import SimPorts

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Site:
    """A site whose metrics are `count` lines that contain the number of the scrape."""

    def __init__(self, count: int = 3) -> None:
        self.ports = SimPorts()
        self.count = count
        self.made_lines = self.scrapes = 0
        self.error: Exception | None = None
        pages: dict[str, Page] = {}
        self.factory = HttpFactory(
            pages, self.ports.timers, lambda: self.ports.clock.monotonic_ms() / 1000
        )
        pages["/metrics"] = self.page = MetricsPage(
            self._lines, self.ports.timers, self.factory.open_connections
        )

    def _lines(self) -> Iterator[str]:
        self.scrapes += 1
        number = self.scrapes
        for _ in range(self.count):
            self.made_lines += 1
            if self.error is not None:
                raise self.error
            yield f"scrape {number} {'x' * 100}"

    def ask(self) -> HttpClient:
        client = HttpClient(self.factory)
        client.send(GET)
        return client


def test_each_turn_creates_a_limited_number_of_lines() -> None:
    site = Site(10 * LINES_PER_TURN + 1)
    client = site.ask()
    turns = 0
    while site.made_lines < site.count:
        before = site.made_lines
        assert before <= (turns + 1) * LINES_PER_TURN
        site.ports.timers.run_next()
        assert site.made_lines - before <= LINES_PER_TURN
        turns += 1
    code, _, body = client.response()
    assert code == HTTPStatus.OK
    assert body.count(b"\n") == site.count
    assert turns == 10


def test_concurrent_requests_get_the_same_text() -> None:
    site = Site(3 * LINES_PER_TURN)
    clients = [site.ask() for _ in range(10)]
    site.ports.settle()
    clients.append(site.ask())
    assert site.scrapes == 1
    assert len({client.response()[2] for client in clients}) == 1


def test_text_is_created_again_after_a_second() -> None:
    site = Site()
    assert b"scrape 1" in site.ask().response()[2]
    site.ports.advance(KEEP_MS - 1)
    assert b"scrape 1" in site.ask().response()[2]
    site.ports.advance(2)
    assert b"scrape 2" in site.ask().response()[2]


def test_old_text_is_dropped_when_it_is_not_being_sent() -> None:
    site = Site(3 * LINES_PER_TURN)
    slow = site.ask()
    site.ports.settle()
    site.ports.advance(KEEP_MS)
    assert len(site.page._texts) == 1
    slow.read()
    site.ask()
    site.ports.settle()
    assert len(site.page._texts) == 1


def test_slow_readers_keep_a_limited_number_of_texts() -> None:
    site = Site(3 * LINES_PER_TURN)
    clients = []
    for _ in range(TEXTS_MAX + 2):
        clients.append(site.ask())
        site.ports.advance(KEEP_MS)
    aborted = [client.transport.aborted for client in clients]
    assert aborted == [True] * 2 + [False] * TEXTS_MAX
    assert len(site.page._texts) == TEXTS_MAX


def test_disconnected_client_does_not_affect_others() -> None:
    site = Site(3 * LINES_PER_TURN)
    leaving, staying = site.ask(), site.ask()
    leaving.protocol.connectionLost()
    site.ports.settle()
    assert staying.response()[0] == HTTPStatus.OK


@pytest.mark.parametrize("count", [1, 3 * LINES_PER_TURN])
def test_failing_metric_fails_one_scrape(count: int) -> None:
    site = Site(count)
    site.error = RuntimeError("secret")
    client = site.ask()
    site.ports.settle()
    assert client.response()[0] == HTTPStatus.INTERNAL_SERVER_ERROR
    site.error = None
    client = site.ask()
    site.ports.settle()
    assert client.response()[0] == HTTPStatus.OK
