"""Access to ZooKeeper: the operations on znodes, and a client that uses kazoo on a reactor.

The broker's metadata store (plogd/metadata/zookeeper/port.py) and consumers with
coordination=zookeeper (plog/client/zookeeper/ports.py) use this package through ports.
`plog zookeeper-shell` has a separate, blocking client (plog/cli/zookeeper/client.py). Start with
operations.py.
"""
