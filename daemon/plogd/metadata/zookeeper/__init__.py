"""The metadata store of a cluster, kept in ZooKeeper with the znodes of Kafka 3.9.

Pure: the package reaches ZooKeeper through the port in port.py. Start with store.py; paths.py and
values.py define the znodes.
"""
