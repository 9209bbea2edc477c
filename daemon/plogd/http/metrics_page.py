"""The page /metrics: the text of all metrics, created in slices and cached for a second.

For a broker with thousands of topics, the text is several megabytes long. It is therefore created a
few hundred lines at a time, and other requests run in between. Requests that arrive in the
meantime, or within a second afterward, get the same text. Only the latest few texts are kept.

Created by site.py; reactor thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from plogd.fair_queue import FairQueue
from plogd.http.http_server import HttpConnection, Response
from plogd.metrics import CONTENT_TYPE
from plogd.ports import Later, Timers, spawn

LINES_PER_TURN: Final = 500
KEEP_MS: Final = 1000.0
"""Maximum age of a cached text."""
# A client that reads slowly keeps an old text in memory, so connections that still send an older
# text than these are closed.
TEXTS_MAX: Final = 3
"""Maximum number of texts in memory, including the newest."""


class MetricsPage:
    """The page /metrics and the texts that are being sent.

    Args:
        lines: yields the lines of the text; each line is cheap to create.
        connections: returns the open connections, some of which may be sending a text.
    """

    def __init__(
        self,
        lines: Callable[[], Iterator[str]],
        timers: Timers,
        connections: Callable[[], list[HttpConnection]],
    ) -> None:
        self._lines = lines
        self._timers = timers
        self._queue = FairQueue(timers)
        self._connections = connections
        self._waiting: list[Later[Response]] = []
        self._is_making = False
        self._text: bytes | None = None
        self._texts: list[bytes] = []

    def __call__(self) -> Response | Later[Response]:
        """Return the response to a request."""
        if self._text is not None:
            return _response(self._text)
        later: Later[Response] = Later()
        self._waiting.append(later)
        if not self._is_making:
            self._is_making = True
            spawn(self._make()).then(self._made, self._failed)
        return later

    async def _make(self) -> bytes:
        pieces: list[bytes] = []
        slice_: list[str] = []
        for line in self._lines():
            slice_.append(line)
            if len(slice_) == LINES_PER_TURN:
                pieces.append(_encoded(slice_))
                slice_.clear()
                await self._queue.turn()
        return b"".join([*pieces, _encoded(slice_)])

    def _made(self, text: bytes) -> None:
        self._is_making = False
        self._text = text
        self._texts.append(text)
        self._drop_texts()
        self._timers.call_later(KEEP_MS, self._forget)
        # Swapped first, so that each request is answered once, whatever its callback does.
        waiting, self._waiting = self._waiting, []
        for later in waiting:
            later.succeed(_response(text))

    def _failed(self, error: Exception) -> None:
        self._is_making = False
        waiting, self._waiting = self._waiting, []
        for later in waiting:
            later.fail(error)

    def _forget(self) -> None:
        self._text = None
        self._drop_texts()

    def _drop_texts(self) -> None:
        """Keep the texts in use, at most TEXTS_MAX; abort connections that send older texts."""
        # By identity, because comparing texts that are several megabytes long is slow.
        sent: dict[int, list[HttpConnection]] = {}
        for connection in self._connections():
            sent.setdefault(id(connection.sending), []).append(connection)
        for text in self._texts[:-TEXTS_MAX]:
            for connection in sent.get(id(text), ()):
                connection.abort()
        newest = self._texts[-TEXTS_MAX:]
        # A text that is not being sent is released even if it is one of the latest.
        self._texts = [text for text in newest if text is self._text or id(text) in sent]


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _response(text: bytes) -> Response:
    return Response(HTTPStatus.OK, CONTENT_TYPE, text)
