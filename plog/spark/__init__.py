"""The Spark data source ``plog``, which reads and writes topics of plog and Kafka.

Columns, options and checkpoints are those of Spark's Kafka connector. `plog.client` fetches the
records and converts them to Arrow. Start with source.py, the entry point of Spark; then read
`options`, `reader` (queries that read), `sink` (queries that write) and `values` (decoding).

Code that needs pyspark is kept small, and everything else is tested without Spark. Jobs call
`decode` and `dead_letters`, which are imported on first use. The top-level module `pyspark_plog`
registers the source in every Spark session.

Source: Spark 4.2 Structured Streaming + Kafka Integration Guide, KafkaSourceProvider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Type checkers do not see the names that `__getattr__` returns.
    from plog.spark.values.dead_letter_rows import dead_letters as dead_letters
    from plog.spark.values.decoded_values import decode as decode

_MODULE_OF = {
    "dead_letters": "plog.spark.values.dead_letter_rows",
    "decode": "plog.spark.values.decoded_values",
}

__all__ = sorted(_MODULE_OF)  # Derived, so that the names are listed only once.


def __getattr__(name: str) -> object:
    from importlib import import_module

    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Stored, so that the next use of the name does not call this function.
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return [*__all__]
