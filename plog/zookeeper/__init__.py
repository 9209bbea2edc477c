"""Access to ZooKeeper: the operations on znodes, and a client that uses kazoo on a reactor.

The broker's metadata store uses this package through a port of its own
(plogd/metadata/zookeeper/port.py). `plog zookeeper-shell` has a separate, blocking client
(plog/cli/zookeeper/client.py). Start with operations.py.
"""
