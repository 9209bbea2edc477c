"""The Spark data source ``plog``, which reads and writes topics of plog and Kafka.

Options, columns and offsets of the source belong here; they are those of Spark's Kafka connector.
`plog.client` fetches the records and converts them to Arrow. Only source.py, batch_reader.py,
record_writers.py and deduplicating_writer.py import pyspark; the other files are plain code, which
is tested without Spark. Start with source.py; source_options.py and sink_options.py list the
options.

A batch query is planned in the driver (batch_ranges.py, cluster_lookup.py, task_planning.py), and
its records are read in the Python workers (range_reading.py). The workers also write the rows of a
query (record_writing.py); deduplication.py and deduplicated_writing.py keep a stream from writing
a row twice. The top-level module `pyspark_plog` registers the source in every Spark session.

Source: Spark 4.2 Structured Streaming + Kafka Integration Guide, KafkaSourceProvider.
"""
