"""Check the application objects that a client calls: serializers, assignors, interceptors.

The faces run these checks in their constructors and raise a TypeError that names the parameter.
Without the checks, a mistake would surface only during a rebalance or a send, or never. The checks
for rebalance listeners are in rebalance_listener.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from plog.client.assignors import Assignor

_LONGEST_SHOWN = 80


def check_functions(**given: object) -> None:
    """Raise a TypeError that names the parameter if an argument is neither callable nor None."""
    for name, function in given.items():
        if function is not None and not callable(function):
            refuse(name, function, "pass a function that takes one argument")


def check_callback(name: str, callback: object) -> None:
    """Raise TypeError if a callback is neither callable nor None."""
    if callback is not None and not callable(callback):
        refuse(name, callback, "pass a function")


def check_interceptors(interceptors: object) -> None:
    """Raise TypeError if `interceptors` is not a list, or an entry lacks a method."""
    advice = "pass an instance of a subclass of plog.ProducerInterceptor"
    for name, interceptor in _each("interceptors", interceptors):
        check_methods(name, interceptor, ("on_send", "on_acknowledgement", "close"), advice)


def check_partitioner(partitioner: object) -> Callable[..., int] | None:
    """Return the function that chooses partitions, or None for the default.

    Raises TypeError if `partitioner` cannot choose partitions.
    """
    if partitioner is None:
        return None
    choose = getattr(partitioner, "partition", partitioner)
    # str and bytes also have a `partition` method.
    is_text = isinstance(partitioner, str | bytes)
    # On a class, `partition` is not bound to an instance. A class without that method, such as
    # `int`, is accepted as a function.
    is_class = isinstance(partitioner, type) and choose is not partitioner
    if is_text or is_class or not callable(choose):
        advice = "pass an object with a `partition` method, such as plog.HashPartitioner()"
        refuse("partitioner", partitioner, f"{advice}, or a function")
    return cast(Callable[..., int], choose)


def check_assignors(assignors: object) -> Sequence[Assignor] | None:
    """Return an instance of each assignor.

    Raises TypeError for an object that is not an assignor, and ValueError for an unknown or
    duplicate name.
    """
    if assignors is None:
        return None
    # Imported here because few consumers pass their own assignors.
    from plog.client.assignors import assignors_from

    made: list[Any] = []
    for name, entry in _each("assignors", assignors):
        # Assignors may keep state, so each client creates its own instance of a class.
        one = entry() if isinstance(entry, type) else entry
        if not isinstance(one, str):
            _check_assignor(name, one)
        made.append(one)
    return assignors_from(made)


def _check_assignor(name: str, assignor: object) -> None:
    advice = "pass an instance of a subclass of plog.Assignor"
    check_methods(name, assignor, ("assign", "user_data", "on_assignment"), advice)
    if not isinstance(getattr(assignor, "name", None), str):
        refuse(name, assignor, "its `name` is not a string such as 'range'")
    if not hasattr(assignor, "protocols"):
        refuse(name, assignor, f"it does not have a `protocols` attribute; {advice}")


def check_methods(name: str, given: object, methods: Sequence[str], advice: str) -> None:
    """Raise TypeError if `given` is a class or lacks one of `methods`."""
    # A class also has the methods, but they can only be called on an instance.
    if isinstance(given, type):
        refuse(name, given, "this is a class; pass an instance of it")
    missing = [method for method in methods if not callable(getattr(given, method, None))]
    if missing:
        refuse(name, given, f"it does not have {' or '.join(missing)}; {advice}")


def _each(name: str, given: object) -> Iterable[tuple[str, Any]]:
    # A string is iterable, but its characters are not the objects that a client can call.
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        refuse(name, given, "pass a list")
    return [(f"{name}[{number}]", one) for number, one in enumerate(given)]


def refuse(name: str, given: object, why: str) -> NoReturn:
    """Raise TypeError for the object given as the parameter `name`; `why` includes the remedy."""
    # The repr of an application object may be very long and would hide the advice.
    shown = repr(given)
    if len(shown) > _LONGEST_SHOWN:
        shown = f"a {type(given).__name__}"
    raise TypeError(f"{name} is {shown}: {why}")
