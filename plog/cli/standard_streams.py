"""The three streams a tool was started with, made fit for use.

Who starts a tool may have closed some of them (``plog topics --list >&-``). Python has None for
such a stream then, and its descriptor would become the next socket's. What the client library warns
of goes to standard error, looking like all other complaints.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Put the null device where a stream is closed; for the beginning of a process."""
    for name, mode in _STREAMS:  # In the order of their descriptors: open takes the lowest.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def show_warnings() -> None:
    """Let the client's warnings be lines of ours on standard error."""
    import logging  # The client needs it anyway.

    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("plog: %(message)s"))
    logging.getLogger("plog.client").handlers = [shown]


def reader_is_gone(descriptor: int) -> bool:
    """Whether nobody will ever read what is written into a pipe."""
    import select

    watched = select.poll()
    watched.register(descriptor, 0)  # POLLERR alone, which is always told.
    return any(event & select.POLLERR for _, event in watched.poll(0))
