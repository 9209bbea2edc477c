"""``plog metadata-shell``, and tools that read and write metadata logs without a broker.

This package contains the shell, the tree it displays, and the reader of Kafka's own metadata logs.
The metadata of a running broker is in `plogd.metadata`. Start with shell.py, then
metadata_tree.py.
"""
