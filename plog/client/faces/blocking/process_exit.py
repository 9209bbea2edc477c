"""Flush the open producers and close the consumers when the process ends."""

from __future__ import annotations

import atexit
import logging
import time

from plog.client.faces.blocking.consumer import known_consumers
from plog.client.faces.blocking.producer import open_producers

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
