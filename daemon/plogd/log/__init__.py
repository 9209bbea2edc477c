"""The log of a partition, and all logs of a broker.

Appending, reading, retention, deletion and producer state belong here. The package is pure and
accesses the disk only through `plogd.ports.Files`. Leadership, the high watermarks of followers and
pending requests belong to `plogd.replica`. Start with log.py, then log_manager.py; file names and
formats are Kafka's, described in docs/log-format.md.
"""
