"""The consumer of a Python worker, kept between tasks so that its connections stay open.

A Python worker of Spark runs one task at a time, but many tasks in its life. Each query has its own
settings, and a worker usually serves one query, so only the last consumer is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.consumer.simple_consumer import SimpleConsumer

_Key = tuple[tuple[str, str], ...]

_kept: dict[_Key, SimpleConsumer] = {}


def take_consumer(settings: Mapping[str, str]) -> SimpleConsumer:
    """Return the kept consumer, or a new one; give it back with `keep_consumer`.

    A consumer that failed, or whose task was abandoned, is not given back, because its connection
    may have a response to an earlier request.
    """
    kept = _kept.pop(_key(settings), None)
    return SimpleConsumer(config=settings) if kept is None else kept


def keep_consumer(settings: Mapping[str, str], consumer: SimpleConsumer) -> None:
    """Keep `consumer` for the next task, and close the one that was kept before."""
    for other in _kept.values():
        other.close()
    _kept.clear()
    _kept[_key(settings)] = consumer


def _key(settings: Mapping[str, str]) -> _Key:
    return tuple(sorted(settings.items()))
