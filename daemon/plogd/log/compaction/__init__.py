"""Compaction: keep only the last record of each key in a log (``cleanup.policy=compact``).

log_cleaner.py selects a log and swaps its segments, on the reactor's thread. cleaning.py, with the
other modules, writes the new segments, in a child process.
"""
