"""The Spark data source ``plog``, which reads and writes topics of plog and Kafka.

Options, columns and offsets of the source belong here; they are those of Spark's Kafka connector.
`plog.client` fetches the records and converts them to Arrow. Only source.py, batch_reader.py,
stream_reader.py and record_writers.py import pyspark, and decoded_values.py and dead_letter_rows.py
inside functions; the other files are plain code, which is tested without Spark. Start with
source.py; source_options.py and sink_options.py list the options.

A batch query is planned in the driver (batch_ranges.py, cluster_lookup.py, task_planning.py), and
its records are read in the Python workers (range_reading.py). The workers also write the rows of a
query (record_writing.py). The top-level module `pyspark_plog` registers the source in every Spark
session.

Jobs call `decode` and `dead_letters`, which are imported on first use.

Source: Spark 4.2 Structured Streaming + Kafka Integration Guide, KafkaSourceProvider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Type checkers do not see the names that `__getattr__` returns.
    from plog.spark.dead_letter_rows import dead_letters as dead_letters
    from plog.spark.decoded_values import decode as decode

_MODULE_OF = {
    "dead_letters": "plog.spark.dead_letter_rows",
    "decode": "plog.spark.decoded_values",
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
