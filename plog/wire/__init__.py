"""Kafka's protocol: the bytes of a connection as values, and values as bytes.

The schema language, the declared messages, headers and frames belong here, and so do the records of
Kafka's internal topics. Record batches are opaque bytes in this package and belong to
`plog.records`; nothing here does I/O. Start with schema.py and one declaration, such as
messages/heartbeat.py.
"""
