"""The log of a partition, and all logs of a broker.

Appending, reading, retention, deletion and producer state belong here. The package is pure and
accesses the disk only through `plogd.ports.Files`. Leadership, the high watermarks of followers and
pending requests belong to `plogd.replica`. Start with log.py, then log_manager.py. File names and
formats are those of Kafka; docs/log-format.md describes them.
"""
