"""At process exit, flush open producers and remove open consumers from their groups."""

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
    # All producers share one time limit, so that the exit does not take longer with each producer.
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    try:
        # Consumers do not commit: a failure to process a record may be why the process exits, and
        # a commit would skip that record.
        for consumer in known_consumers():
            consumer._abandon()
        for producer in open_producers():
            try:
                producer.close(max(0.0, deadline_s - time.monotonic()))
            except Exception:
                # One producer's error must not prevent the others from sending their records.
                log.exception("failed to close a producer at exit")
    except KeyboardInterrupt:
        # The user has pressed Ctrl-C again to end the wait.
        pass
