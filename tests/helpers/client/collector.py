"""Detection of reference cycles, while Python's cycle collector is off.

Objects that a broker creates for a connection, request or topic must be freed together with their
owner. Cycles would stay until the collector runs, which visits old objects only after many new
ones.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Collect all garbage, then switch the collector off inside the with statement."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def cycles_left_by(function: Callable[[], object]) -> Counter[str]:
    """Return the objects, by class, that only the collector could free after a call of `function`.

    It counts what each of two calls leaves, because garbage of an earlier test may be freed once,
    by chance.
    """
    function()  # Objects that are created once and kept are created now.
    return _garbage_of(function) & _garbage_of(function)


def _garbage_of(function: Callable[[], object]) -> Counter[str]:
    with no_collector():
        function()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            return Counter(type(thing).__name__ for thing in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


def growth_of(function: Callable[[int], object], calls: int = 20) -> dict[str, int]:
    """Return how many more objects of plog's classes exist after calls of `function`, by class.

    The calls receive 0, 1, 2 and so on. A class that grows by less than one object in two calls
    does not leak: for example, the metadata log may create an index meanwhile.
    """
    for number in range(3):
        function(number)
    before = _own_objects()
    for number in range(3, 3 + calls):
        function(number)
    grown = _own_objects() - before
    return {kind: count for kind, count in grown.items() if count >= calls // 2}


def _own_objects() -> Counter[str]:
    gc.collect()
    kinds = Counter(type(thing) for thing in gc.get_objects())
    return Counter(
        {
            f"{kind.__module__}.{kind.__qualname__}": count
            for kind, count in kinds.items()
            if str(kind.__module__).partition(".")[0] in ("plog", "plogd")
        }
    )
