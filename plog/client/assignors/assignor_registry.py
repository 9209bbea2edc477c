"""Create assignors from the values of ``partition.assignment.strategy``."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from plog.client.assignors.assignor import Assignor
from plog.client.assignors.range_assignor import RangeAssignor
from plog.client.assignors.round_robin_assignor import RoundRobinAssignor
from plog.client.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor

_KNOWN: tuple[type[Assignor], ...] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
)
_BY_NAME = {assignor.name: assignor for assignor in _KNOWN}
_BY_CLASS = {assignor.__name__: assignor for assignor in _KNOWN}
# Settings files for Java clients contain class names with their packages.
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."


def assignors_from(strategy: Iterable[str | Assignor | type[Assignor]]) -> list[Assignor]:
    """Return an assignor for each entry, which is a name, Kafka's class name, a class or instance.

    Raises ValueError for an unknown or duplicate name.

    >>> [x.name for x in assignors_from(["org.apache.kafka.clients.consumer.RangeAssignor"])]
    ['range']
    """
    found = [_assignor(entry) for entry in strategy]
    names = [assignor.name for assignor in found]
    if not names:
        raise ValueError("the list of assignors is empty; set at least one assignor")
    # JoinGroup identifies assignors by name, so each name must be unique.
    if len(set(names)) < len(names):
        raise ValueError(f"duplicate assignor in {', '.join(names)}")
    return found


def _assignor(entry: str | Assignor | type[Assignor]) -> Assignor:
    # An assignor may keep state, so each member gets its own instance.
    if isinstance(entry, type):
        return entry()
    if not isinstance(entry, str):
        return entry
    known = _BY_NAME.get(entry) or _BY_CLASS.get(entry.removeprefix(_JAVA_PACKAGE))
    if known is None:
        near = get_close_matches(entry, [*_BY_NAME, *_BY_CLASS], 1)
        hint = f"did you mean {near[0]}?" if near else f"known assignors: {', '.join(_BY_NAME)}"
        raise ValueError(f"unknown assignor {entry!r}: {hint}")
    return known()
