"""Queries that read: their plans in Spark's driver, and their tasks in the Python workers.

Batch queries start in batch_reader.py and batch_ranges.py, streams in stream_reader.py and
stream_planning.py; range_reading.py reads the records of a task. Options are parsed in
`plog.spark.options`, and values are decoded in `plog.spark.values`.
"""
