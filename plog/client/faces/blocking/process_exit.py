"""Flush open producers and close consumers when the process exits."""

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
    """Send the buffered records of producers and remove consumers from their groups."""
    # A single time limit for all producers.
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    try:
        # Consumers do not commit: the process may exit because of the record it is processing.
        for consumer in known_consumers():
            consumer._abandon()
        for producer in open_producers():
            try:
                producer.close(max(0.0, deadline_s - time.monotonic()))
            except Exception:
                # The error must not prevent the other producers from closing.
                log.exception("failed to close a producer at exit")
    except KeyboardInterrupt:
        # The user has interrupted the wait.
        pass
