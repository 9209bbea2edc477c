"""kazoo's handler for `KazooZooKeeper`: watch events in order, and servers that hang.

kazoo calls it on the thread of the connection.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

from plog.client.network.tls_context import Security
from plog.zookeeper.sockets import Sockets

_TIMEOUTS_PER_SESSION: Final = 1.5
"""As in kazoo and ZooKeeper's own client: two thirds of the session timeout are for a response, and
one third is for a connection to another server."""


class ConnectionHandler(Sockets):
    """A handler without kazoo's thread for watch events, which ends connections without responses.

    kazoo itself notices only that a *ping* gets no response. It sends a ping if there was no
    request for some time, so it sends none to a server that hangs while there are heartbeats.

    Attributes:
        unanswered: kazoo's requests that have been sent and have no response yet.
    """

    def __init__(self, security: Security | None) -> None:
        super().__init__(security)
        self.unanswered: Collection[Any] = ()
        self._response_timeout_s = float("inf")
        self._waiting_since_s = 0.0

    def session_begins(self, session_timeout_ms: int) -> None:
        """Set the session timeout that the server has granted."""
        self._response_timeout_s = session_timeout_ms / 1000 / _TIMEOUTS_PER_SESSION

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for sockets; the arguments are those of `select.select`.

        Raises kazoo's timeout error if a request gets no response, after which kazoo reconnects.
        """
        had_unanswered = bool(self.unanswered)
        ready = super().select(*args, **kwargs)
        now_s = time.monotonic()
        # The first socket is the connection; the second one announces requests of other threads.
        connection = args[0][:1]
        has_received = bool(connection) and connection[0] in ready[0]
        if has_received or not had_unanswered:
            self._waiting_since_s = now_s
        elif now_s - self._waiting_since_s > self._response_timeout_s:
            self._waiting_since_s = now_s
            self.problem = "no response"
            raise self.timeout_exception("no response to a request")
        return ready

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watcher at once, on the thread that has read the event.

        A watcher only puts a call into the queue. On a thread of its own, it could be overtaken by
        a response that was read later.
        """
        callback.func(*callback.args)
