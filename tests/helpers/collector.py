"""Nothing but the counts of references: the collector of cycles is told to keep out of it.

What a broker makes for each connection, request or topic has to go when its owner goes. Cycles
would wait for the collector, which looks at old objects only after many new ones.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Inside, cycles stay; what was there before has been collected."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def cycles_left_by(function: Callable[[], object]) -> Counter[str]:
    """The objects, by class, that only the collector could free after a call of `function`.

    What each of two calls leaves: what an earlier test left behind is let go of once, by chance.
    """
    function()  # What is made once and kept is made now.
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
    """How many more objects of our own classes there are after calls of `function`, by class.

    It is called with 0, 1, 2 ...; what grows by less than one in two calls, does not leak: the log
    of the metadata, say, has got an index meanwhile.
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
