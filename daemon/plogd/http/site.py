"""The pages /metrics, /health and /ready on ``plog.http.port``.

service.py passes the functions that create the pages. /health returns 503 if the operator must
repair something, such as an offline log directory; /ready returns 503 while the broker is starting
or stopping. /ready?in-sync also returns 503 while a replica on this broker is not in sync. They
return details in JSON (health.py). The pages do not require authentication, because the port
listens on loopback by default. http_server.py limits the resources of clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Protocol, cast

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from plogd.config import BrokerConfig
from plogd.http.health import Status
from plogd.http.http_server import HttpFactory, Page, Response
from plogd.http.metrics_page import MetricsPage
from plogd.ports import Later, MaybeLater, Timers

log = Logger()

_INDEX = Response(
    HTTPStatus.OK, "text/plain; charset=utf-8", b"/metrics\n/health\n/ready\n/ready?in-sync\n"
)


class SiteChecks(Protocol):
    """The checks that the pages show; see `Checks`."""

    def health(self) -> Status:
        """Return whether the operator has nothing to repair."""
        ...

    def ready(self) -> Status:
        """Return whether the broker serves requests."""
        ...

    def in_sync(self) -> MaybeLater[Status]:
        """Return whether the broker is ready and all its replicas are in sync."""
        ...


def make_site(
    timers: Timers,
    seconds: Callable[[], float],
    *,
    metrics: Callable[[], Iterator[str]],
    checks: SiteChecks,
) -> HttpFactory:
    """Create the site from the function that yields the metrics' lines, and the checks."""
    pages: dict[str, Page] = {
        "/": lambda: _INDEX,
        "/health": lambda: _status_page(checks.health()),
        "/ready": lambda: _status_page(checks.ready()),
        "/ready?in-sync": lambda: _in_sync_page(checks.in_sync()),
    }
    site = HttpFactory(pages, timers, seconds)
    # Added last, because this page needs the connections of the site.
    pages["/metrics"] = MetricsPage(metrics, timers, site.open_connections)
    return site


def listen(reactor: Any, config: BrokerConfig, site: HttpFactory) -> IListeningPort | None:
    """Open ``plog.http.port``; return None if it is 0, or if the default port is in use.

    Raises:
        CannotListenError: the port cannot be opened and was set explicitly.
    """
    port, host = config.plog_http_port, config.plog_http_host
    if port == 0:
        return None
    backlog = config.socket_listen_backlog_size
    try:
        return cast(IListeningPort, reactor.listenTCP(port, site, backlog, host))
    except CannotListenError as error:
        # With the defaults, several brokers can run on one host, even though only the first one
        # gets the port.
        if {"plog.http.port", "plog.http.host"} & config.explicit:
            raise
        log.warn(
            "cannot serve /metrics, /health and /ready on {host}:{port}, the default address:"
            " {error}; set plog.http.port to another port, or to 0 to disable them",
            host=host,
            port=port,
            error=error.socketError,
        )
        return None


def _in_sync_page(status: MaybeLater[Status]) -> Response | Later[Response]:
    return status.map(_status_page) if isinstance(status, Later) else _status_page(status)


def _status_page(status: Status) -> Response:
    code = HTTPStatus.OK if status.ok else HTTPStatus.SERVICE_UNAVAILABLE
    content = {"status": "ok" if status.ok else "unavailable", **status.details}
    return Response(code, "application/json", json.dumps(content, indent=2).encode() + b"\n")
