"""The log of a partition, and all logs of a broker.

Appending, reading, retention, deletion and producer state belong here; the package is pure and
reaches the disk only through `plogd.files.Files`. Leadership, high watermarks of followers and
waiting requests do not belong here but to `plogd.replica`. Start with log.py, then log_manager.py;
files have Kafka's names and formats, which docs/log-format.md describes.
"""
