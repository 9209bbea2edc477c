"""Call several callbacks so that an exception in one does not keep the others from being called."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def notify_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls, then raise the error if one failed, or an ExceptionGroup for several."""
    errors: list[Exception] = []
    for call in calls:
        try:
            call()
        # Not BaseException, with which the simulator kills a broker.
        except Exception as error:
            errors.append(error)
    if len(errors) > 1:
        raise ExceptionGroup(f"{len(errors)} callbacks failed", errors)
    if errors:
        # As it is, so that callers can handle its type.
        raise errors[0]
