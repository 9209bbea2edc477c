"""The HTTP site: its pages, and where it listens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, capturedLogs

from plogd.config import BrokerConfig
from plogd.http.http_server import HttpFactory
from plogd.http.site import Status, listen, make_site
from plogd.ports import MaybeLater
from plogd.ports import ready as done
from tests.helpers.http_client import HttpClient
from tests.helpers.sim.sim_ports import SimPorts

WELL = Status(ok=True, details={})


class FixedChecks:
    """Checks with fixed results."""

    def __init__(self, health: Status, ready: Status, in_sync: MaybeLater[Status]) -> None:
        self._health, self._ready, self._in_sync = health, ready, in_sync

    def health(self) -> Status:
        return self._health

    def ready(self) -> Status:
        return self._ready

    def in_sync(self) -> MaybeLater[Status]:
        return self._in_sync


def site(
    metrics: Callable[[], Iterator[str]] = lambda: iter(["a 1"]),
    health: Status = WELL,
    ready: Status = WELL,
    in_sync: MaybeLater[Status] = WELL,
) -> HttpFactory:
    ports = SimPorts()
    return make_site(
        ports.timers,
        lambda: ports.clock.monotonic_ms() / 1000,
        metrics=metrics,
        checks=FixedChecks(health, ready, in_sync),
    )


def ask(site: HttpFactory, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Return (code, headers, body) of one request on a separate connection."""
    client = HttpClient(site)
    client.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return client.response()


def test_metrics_page_has_the_text_of_the_registry() -> None:
    code, headers, body = ask(site(), "/metrics")
    assert (code, body) == (200, b"a 1\n")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["cache-control"] == "no-store"


def test_health_returns_200_with_details() -> None:
    code, headers, body = ask(site(health=Status(ok=True, details={"partitions": 3})), "/health")
    assert (code, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "partitions": 3}


def test_health_returns_503_when_a_log_directory_is_offline() -> None:
    sick = Status(ok=False, details={"offline_log_dirs": ["/d"]})
    code, _, body = ask(site(health=sick), "/health")
    assert code == 503
    assert json.loads(body) == {"status": "unavailable", "offline_log_dirs": ["/d"]}


def test_ready_returns_503_while_the_broker_loads() -> None:
    loading = Status(ok=False, details={"state": "loading"})
    assert ask(site(ready=loading), "/ready")[0] == 503
    assert ask(site(ready=loading), "/health")[0] == 200


@pytest.mark.parametrize("path", ["/ready?in-sync", "/ready/?a=b&in-sync=true"])
def test_ready_in_sync_returns_503_while_a_replica_is_not_in_sync(path: str) -> None:
    behind = Status(ok=False, details={"outOfSync": 1, "partitions": ["t-0"]})
    for outcome in (behind, done(behind)):
        code, _, body = ask(site(in_sync=outcome), path)
        assert (code, json.loads(body)["partitions"]) == (503, ["t-0"])
    assert ask(site(in_sync=WELL), path)[0] == 200
    assert ask(site(in_sync=behind), "/ready?x=1")[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/nothing", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/health", 405),
        ("GET", "/health/", 200),
    ],
)
def test_other_requests_get_an_error_status(method: str, path: str, code: int) -> None:
    assert ask(site(), path, method)[0] == code


class TakenPorts(MemoryReactorClock):
    """Every port is in use."""

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        raise CannotListenError(interface, port, OSError(98, "Address already in use"))


def test_site_listens_on_the_configured_address() -> None:
    reactor = MemoryReactorClock()
    config = BrokerConfig(plog_http_port=81, plog_http_host="::1", socket_listen_backlog_size=1000)
    assert listen(reactor, config, site()) is not None
    [(port, _, backlog, interface)] = reactor.tcpServers
    assert (port, backlog, interface) == (81, 1000, "::1")


def test_port_0_disables_the_site() -> None:
    reactor = MemoryReactorClock()
    assert listen(reactor, BrokerConfig(plog_http_port=0), site()) is None
    assert reactor.tcpServers == []


def test_default_port_in_use_is_only_a_warning() -> None:
    with capturedLogs() as events:
        assert listen(TakenPorts(), BrokerConfig(), site()) is None
    assert [e["log_level"] for e in events] == [LogLevel.warn]


def test_configured_port_in_use_is_an_error() -> None:
    config = BrokerConfig(explicit=frozenset({"plog.http.port"}))
    with pytest.raises(CannotListenError):
        listen(TakenPorts(), config, site())
