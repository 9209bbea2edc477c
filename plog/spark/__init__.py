"""The Spark data source ``plog``, which reads topics of plog and Apache Kafka.

Options, offsets, tasks and limits of the source belong here; they are those of Spark's Kafka
connector. The records are fetched and converted to Arrow by `plog.client`. Plain code, which is
tested without Spark. Start with source_options.py, which lists the options.

Source: Spark 4.2 Structured Streaming + Kafka Integration Guide, KafkaSourceProvider.
"""
