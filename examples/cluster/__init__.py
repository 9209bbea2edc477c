"""A cluster on this machine: ZooKeeper and three brokers, for trying out replication and failover.

``make cluster`` and ``./run cluster`` run it until Ctrl-C. Start with local_cluster.py.
"""
