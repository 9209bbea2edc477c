"""Kafka's wire protocol: encoding and decoding of messages.

This package contains the schema language, the declared messages, headers and frames, and the
records of Kafka's internal topics. Record batches are opaque bytes here; `plog.records` reads them.
The package does no I/O. Start with schema.py and one declaration, such as messages/heartbeat.py.
"""
