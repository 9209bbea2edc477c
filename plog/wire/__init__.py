"""Bytes on a Kafka connection, to values and back.

`schema` is the language in which messages are declared, `messages` the declarations, `header` and
`frames` what surrounds a message on a connection, `internal` the records Kafka keeps in logs of its
own. Record batches are opaque here: see `plog.records`. Nothing in this package does I/O.
"""
