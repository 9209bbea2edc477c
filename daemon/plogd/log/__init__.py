"""The log of one partition and all it is made of: segments, indexes, producers, checkpoints.

Pure: it knows no sockets, threads or clocks and reaches the disk only through `plogd.ports.Files`.
On disk everything has Kafka's own names and formats (docs/log-format.md), so that Kafka's dump tool
reads our directories and a Kafka data directory can be taken over.
"""
