"""Kafka's wire protocol: encoding and decoding of messages.

This package contains the schema language, the declarations of all messages, headers and frames, and
the records of Kafka's internal topics. It treats record batches as opaque bytes, which
`plog.records` reads. The package does not perform any I/O. Start with schema.py and one
declaration, such as messages/heartbeat.py.
"""

from plog.compiled import compiled_folders

COMPILED = ("single_produce",)
"""Modules that setup.py compiles if Cython and a compiler are available."""

# Inserted in front, so that Python finds a compiled module before its source (decision 0011).
__path__[:0] = compiled_folders(__path__[0], COMPILED)
