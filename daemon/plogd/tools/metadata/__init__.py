"""``plog metadata-shell``, and reading and writing metadata logs without a broker.

The shell, its tree of names and the reader of Kafka's own metadata logs belong here. The running
broker's metadata does not; that is in `plogd.metadata`. Start with shell.py, then
metadata_tree.py.
"""
