"""The blocking face: `Producer`, `Consumer` and `Admin` for code that waits, from any thread.

The engine runs on a private reactor in a daemon thread (private_reactor.py), which calls of any
thread wait for. Each class has a module of its own; here is what happens when the process ends
before they are closed. What is said of a method is all that differs from the other faces.
"""

from __future__ import annotations

import atexit
import logging
import time

from plog.client.faces.blocking.admin import Admin
from plog.client.faces.blocking.consumer import Consumer, known_consumers
from plog.client.faces.blocking.producer import Producer, open_producers
from plog.client.faces.blocking.record_future import RecordFuture

log = logging.getLogger("plog.client")

_EXIT_TIMEOUT_S = 30.0


@atexit.register
def _at_exit() -> None:
    """Send what producers hold, and have consumers leave their groups, if that is quick.

    Consumers commit nothing then: a program may end because of the record it is working on.
    """
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    try:
        for consumer in known_consumers():
            consumer._abandon()
        for producer in open_producers():
            try:
                producer.close(max(0.0, deadline_s - time.monotonic()))
            except Exception:  # The other producers have their turn all the same.
                log.exception("a producer could not be closed")
    except KeyboardInterrupt:
        pass  # The user does not want to wait for it.


__all__ = ["Admin", "Consumer", "Producer", "RecordFuture"]
