"""Kafka's wire protocol: encoding and decoding of messages.

This package contains the schema language, the declarations of all messages, headers and frames, and
the records of Kafka's internal topics. It treats record batches as opaque bytes, which
`plog.records` reads. The package does not perform any I/O. Start with schema.py and one
declaration, such as messages/heartbeat.py.
"""
