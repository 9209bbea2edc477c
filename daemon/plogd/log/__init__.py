"""A partition's log, and all logs on a broker.

This package appends and reads records, enforces retention, deletes logs, recovers them after a
crash and tracks producers. It accesses the disk only through the port `plogd.ports.Files`.
Leadership and pending requests belong to `plogd.replica`. Start with log.py, then read
log_manager.py. File names and formats are Kafka's; docs/log-format.md describes them.
"""
