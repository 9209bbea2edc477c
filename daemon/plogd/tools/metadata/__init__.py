"""``plog metadata-shell``, and tools that read and write metadata logs without a broker.

This package contains the shell, the tree that it displays, the reader of Kafka's metadata logs, and
the writer of plog's metadata logs. The metadata of a running broker is in `plogd.metadata`. Start
with shell.py, then metadata_tree.py.
"""
