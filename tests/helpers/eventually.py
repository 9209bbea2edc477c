"""Polling for results of other programs, which do not announce them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

TIMEOUT_S = 60.0
_PAUSE_S = 0.05

T = TypeVar("T")


def eventually(ask: Callable[[], T | None], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Return the first true result of `ask`; `what` names it in an error."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"no {what} in {timeout_s:g} s"
        pause.wait(_PAUSE_S)
    return answer
