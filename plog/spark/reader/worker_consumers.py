"""The consumer of a Python worker, kept between tasks so that its connections stay open.

A Python worker of Spark runs one task at a time, but many tasks in its life.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.consumer.simple_consumer import SimpleConsumer

_Key = tuple[tuple[str, str], ...]

# Each query has its own settings, and a worker usually serves one query, so only the last consumer
# is kept.
_kept: dict[_Key, SimpleConsumer] = {}


def take_consumer(settings: Mapping[str, str]) -> SimpleConsumer:
    """Return the kept consumer, or a new one; give it back with `keep_consumer`.

    A consumer that failed, or whose task was abandoned, is not given back.
    """
    # It is removed while it is in use, so that a task that fails does not leave it to the next one.
    kept = _kept.pop(_key(settings), None)
    return SimpleConsumer(config=settings) if kept is None else kept


def keep_consumer(settings: Mapping[str, str], consumer: SimpleConsumer) -> None:
    """Keep `consumer` for the next task, and close the one that was kept before."""
    for other in _kept.values():
        other.close()
    _kept.clear()
    _kept[_key(settings)] = consumer


def _key(settings: Mapping[str, str]) -> _Key:
    # A dictionary cannot be a key, and its order does not matter here.
    return tuple(sorted(settings.items()))
