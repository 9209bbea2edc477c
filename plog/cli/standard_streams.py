"""Standard streams of the tools: replace closed streams, and show the client's warnings.

Warnings are printed to standard error in the same format as the tools' errors.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Open the null device in place of each closed stream; call this once, at process startup."""
    # The calling process can close streams (`plog topics --list >&-`). Python then sets the stream
    # to None, and the next socket would get the stream's descriptor. `open` uses the lowest free
    # descriptor, so the streams must be opened in the order of their descriptors.
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def show_warnings() -> None:
    """Print the client's warnings to standard error."""
    import logging  # Not an extra cost: the client imports it anyway.

    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("plog: %(message)s"))
    # The handlers are replaced, because a process, such as a test, can run several commands.
    logging.getLogger("plog.client").handlers = [shown]


def reader_has_closed(descriptor: int) -> bool:
    """Return whether all readers of a pipe have closed it."""
    import select

    watched = select.poll()
    watched.register(descriptor, 0)  # poll always reports POLLERR, even if not requested.
    return any(event & select.POLLERR for _, event in watched.poll(0))
