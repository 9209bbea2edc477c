"""The producer of a Python worker, kept between tasks so that it keeps its producer id.

A Python worker of Spark runs one task at a time, but many tasks in its life.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from plog.client.faces.blocking import Producer

_Key = tuple[tuple[str, str], ...]

# Each query has its own settings, and a worker usually serves one query, so only the last producer
# is kept.
_kept: dict[_Key, Producer] = {}


@contextmanager
def worker_producer(settings: Mapping[str, str]) -> Iterator[Producer]:
    """Yield the kept producer, or a new one, and keep it if the task succeeds.

    After an error it is closed, and records that were not sent yet are dropped.
    """
    key = tuple(sorted(settings.items()))
    producer = _kept.pop(key, None) or Producer(config=settings)
    try:
        yield producer
    except BaseException:
        # Spark repeats the whole task, so waiting for its records would only delay that.
        producer.close(timeout_s=0)
        raise
    for other in _kept.values():
        other.close()
    _kept.clear()
    _kept[key] = producer
