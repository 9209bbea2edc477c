"""/metrics, /health and /ready on ``plog.http.port``.

Knows nothing of the broker: service.py gives it three functions. /health answers 503 when something
is wrong that an operator must repair (a log directory is offline), /ready while the broker does not
serve yet or no longer; both give details in JSON. There is no login: the port is on loopback by
default. http_server.py bounds what a client may cost.
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
    """Make the site; `metrics` makes the lines of /metrics, the others are asked each time."""
    pages: dict[str, Page] = {
        "/": lambda: _INDEX,
        "/health": lambda: _status_page(health()),
        "/ready": lambda: _status_page(ready()),
    }
    site = HttpFactory(pages, timers, seconds)
    pages["/metrics"] = MetricsPage(metrics, timers, site.open_connections)
    return site


def listen(reactor: Any, config: BrokerConfig, site: HttpFactory) -> IListeningPort | None:
    """Open ``plog.http.port``; None if it is 0, or is the default one and taken.

    Raises:
        CannotListenError: the port cannot be opened and is not the default one.
    """
    port, host = config.plog_http_port, config.plog_http_host
    if port == 0:
        return None
    try:
        return cast(IListeningPort, reactor.listenTCP(port, site, interface=host))
    except CannotListenError as error:
        if {"plog.http.port", "plog.http.host"} & config.explicit:
            raise
        log.warn(
            "no /metrics, /health and /ready: {host}:{port}, the default, cannot be opened"
            " ({error}); set plog.http.port to another port, or to 0",
            host=host,
            port=port,
            error=error.socketError,
        )
        return None


def _status_page(status: Status) -> Response:
    code = HTTPStatus.OK if status.ok else HTTPStatus.SERVICE_UNAVAILABLE
    content = {"status": "ok" if status.ok else "unavailable", **status.details}
    return Response(code, "application/json", json.dumps(content, indent=2).encode() + b"\n")
