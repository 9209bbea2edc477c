"""Check the objects of the application that a client calls: serializers, assignors and the like.

The faces call these in their constructors. A wrong object raises TypeError there, naming the
parameter; otherwise the mistake would show only in the middle of a rebalance or of a send, or
never. rebalance_listener.py checks listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from plog.client.assignors import Assignor

_LONGEST_SHOWN = 80


def check_functions(**given: object) -> None:
    """Raise TypeError if one of these, by its name, is given and cannot be called."""
    for name, function in given.items():
        if function is not None and not callable(function):
            refuse(name, function, "give a function of one argument")


def check_callback(name: str, callback: object) -> None:
    """Raise TypeError for a callback that is given and cannot be called."""
    if callback is not None and not callable(callback):
        refuse(name, callback, "give a function")


def check_interceptors(interceptors: object) -> None:
    """Raise TypeError for interceptors that are no list, or lack a method."""
    advice = "derive it from plog.ProducerInterceptor"
    for name, interceptor in _each("interceptors", interceptors):
        check_methods(name, interceptor, ("on_send", "on_acknowledgement", "close"), advice)


def check_partitioner(partitioner: object) -> Callable[..., int] | None:
    """Return the function that chooses partitions. Raises TypeError if there is none."""
    if partitioner is None:
        return None
    choose = getattr(partitioner, "partition", partitioner)
    is_text = isinstance(partitioner, str | bytes)  # Which has a method of that name as well.
    is_class = isinstance(partitioner, type) and choose is not partitioner
    if is_text or is_class or not callable(choose):
        advice = "give an object with a method `partition`, such as plog.HashPartitioner()"
        refuse("partitioner", partitioner, f"{advice}, or a function")
    return cast(Callable[..., int], choose)


def check_assignors(assignors: object) -> Sequence[Assignor] | None:
    """Return an instance of each. Raises TypeError for what cannot assign partitions.

    Raises ValueError for an unknown name, and for one that is given twice.
    """
    if assignors is None:
        return None
    from plog.client.assignors import assignors_from  # Only who has assignors of his own needs it.

    made: list[Any] = []
    for name, entry in _each("assignors", assignors):
        one = entry() if isinstance(entry, type) else entry
        if not isinstance(one, str):
            _check_assignor(name, one)
        made.append(one)
    return assignors_from(made)


def _check_assignor(name: str, assignor: object) -> None:
    advice = "derive it from plog.Assignor"
    check_methods(name, assignor, ("assign", "user_data", "on_assignment"), advice)
    if not isinstance(getattr(assignor, "name", None), str):
        refuse(name, assignor, "its `name` is not a text, such as 'range'")
    if not hasattr(assignor, "protocols"):
        refuse(name, assignor, f"it has no `protocols`; {advice}")


def check_methods(name: str, given: object, methods: Sequence[str], advice: str) -> None:
    """Raise TypeError for an object that lacks one of `methods`, and for a class."""
    if isinstance(given, type):
        refuse(name, given, "this is a class; give an instance of it")
    missing = [method for method in methods if not callable(getattr(given, method, None))]
    if missing:
        refuse(name, given, f"it has no {' and no '.join(missing)}; {advice}")


def _each(name: str, given: object) -> Iterable[tuple[str, Any]]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        refuse(name, given, "give a list")
    return [(f"{name}[{number}]", one) for number, one in enumerate(given)]


def refuse(name: str, given: object, why: str) -> NoReturn:
    """Raise TypeError for the object given as the parameter `name`; `why` includes the remedy."""
    shown = repr(given)
    if len(shown) > _LONGEST_SHOWN:
        shown = f"a {type(given).__name__}"
    raise TypeError(f"{name} is {shown}: {why}")
