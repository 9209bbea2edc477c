"""Telling several others something, when a bug in one must not keep it from the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def notify_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all the calls, whatever one of them raises; that is raised when all have been made.

    For those who tell several others something: a bug in one must not keep it from the rest.
    """
    errors: list[Exception] = []
    for call in calls:
        try:
            call()
        except Exception as error:
            errors.append(error)
    if len(errors) > 1:
        raise ExceptionGroup(f"{len(errors)} of those who were told failed", errors)
    if errors:
        raise errors[0]
