"""The pages /metrics, /health and /ready on ``plog.http.port``.

The pages do not depend on the broker: service.py passes three functions. /health returns 503 if the
operator must repair something, such as an offline log directory; /ready returns 503 while the
broker is starting or stopping. Both return details in JSON. The pages do not require
authentication, because the port listens on loopback by default. http_server.py limits the resources
of clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, cast

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from plogd.config import BrokerConfig
from plogd.http.health import Status
from plogd.http.http_server import HttpFactory, Page, Response
from plogd.http.metrics_page import MetricsPage
from plogd.ports import Timers

log = Logger()

_INDEX = Response(HTTPStatus.OK, "text/plain; charset=utf-8", b"/metrics\n/health\n/ready\n")


def make_site(
    timers: Timers,
    seconds: Callable[[], float],
    *,
    metrics: Callable[[], Iterator[str]],
    health: Callable[[], Status],
    ready: Callable[[], Status],
) -> HttpFactory:
    """Create the site from the functions that yield the metrics' lines and run the two checks."""
    pages: dict[str, Page] = {
        "/": lambda: _INDEX,
        "/health": lambda: _status_page(health()),
        "/ready": lambda: _status_page(ready()),
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


def _status_page(status: Status) -> Response:
    code = HTTPStatus.OK if status.ok else HTTPStatus.SERVICE_UNAVAILABLE
    content = {"status": "ok" if status.ok else "unavailable", **status.details}
    return Response(code, "application/json", json.dumps(content, indent=2).encode() + b"\n")
