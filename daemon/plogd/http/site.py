"""/metrics, /health and /ready on ``plog.http.port``.

Knows nothing of the broker: service.py gives it three functions. /health answers 503 when something
is wrong that needs somebody (a log directory is offline), /ready while the broker does not serve
yet or no longer; both say more in JSON. There is no login: the port is on loopback by default.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from plogd.config import BrokerConfig
from plogd.http.status import Status
from plogd.http.wrong_port import GreetingFactory
from plogd.metrics import CONTENT_TYPE

log = Logger()

_REQUEST_TIMEOUT_SECONDS = 30


def make_site(
    reactor: object,
    *,
    metrics: Callable[[], bytes],
    health: Callable[[], Status],
    ready: Callable[[], Status],
) -> Site:
    """The site that asks the three functions, once a request."""
    root = _Text(b"/metrics\n/health\n/ready\n")
    root.putChild(b"", root)
    root.putChild(b"metrics", _Metrics(metrics))
    root.putChild(b"health", _Status(health))
    root.putChild(b"ready", _Status(ready))
    site = Site(root, reactor=reactor, timeout=_REQUEST_TIMEOUT_SECONDS)
    site.displayTracebacks = False
    return site


def listen(reactor: Any, config: BrokerConfig, site: Site) -> IListeningPort | None:
    """Open ``plog.http.port``; None if it is 0, or is the default one and taken.

    Raises:
        CannotListenError: a port somebody has set cannot be opened.
    """
    port, host = config.plog_http_port, config.plog_http_host
    if port == 0:
        return None
    try:
        # A Site is a ServerFactory, though its annotations do not say of what.
        factory = GreetingFactory(cast(IProtocolFactory, site), reactor.seconds)
        return cast(IListeningPort, reactor.listenTCP(port, factory, interface=host))
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


class _Page(Resource):
    """A page that only answers GET and HEAD."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def _answer(self, request: Request, content_type: str, body: bytes) -> bytes:
        request.responseHeaders.setRawHeaders("content-type", [content_type])
        request.responseHeaders.setRawHeaders("cache-control", ["no-store"])
        return body


class _Text(_Page):
    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def render_GET(self, request: Request) -> bytes:
        return self._answer(request, "text/plain; charset=utf-8", self._text)


class _Metrics(_Page):
    isLeaf = True

    def __init__(self, expose: Callable[[], bytes]) -> None:
        super().__init__()
        self._expose = expose

    def render_GET(self, request: Request) -> bytes:
        return self._answer(request, CONTENT_TYPE, self._expose())


class _Status(_Page):
    isLeaf = True

    def __init__(self, ask: Callable[[], Status]) -> None:
        super().__init__()
        self._ask = ask

    def render_GET(self, request: Request) -> bytes:
        status = self._ask()
        request.setResponseCode(200 if status.ok else 503)
        answer = {"status": "ok" if status.ok else "unavailable", **status.details}
        body = json.dumps(answer, indent=2).encode() + b"\n"
        return self._answer(request, "application/json", body)
