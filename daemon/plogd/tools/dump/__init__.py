"""``plog dump-log``: print the contents of log files as Kafka's DumpLogSegments does.

This package prints batches, indexes and snapshots, and decodes the records of internal topics. It
never repairs a file; recovery is in `plogd.log.recovery`. Start with log_file.py, which prints a
segment's records; command.py defines the options and chooses the printer by the file name suffix.
"""
