"""``plog dump-log``: the contents of log files as text, as Kafka's DumpLogSegments prints them.

Printing batches, indexes and snapshots, and decoding the records of internal topics, belong here.
Nothing here repairs a file; recovery is in `plogd.log.recovery`. Start with command.py, then
record_batches.py.
"""
