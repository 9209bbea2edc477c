"""Coordination of consumer groups by ZooKeeper, as in the paper of 2011 and in Kafka 0.8.

The znodes are those of Kafka 0.8's consumer: registrations of consumers, owners of partitions and
committed offsets. This package neither decides when an application's consumer rebalances, which
`plog.client.group` does, nor imports kazoo: it uses the port in ports.py. Start with
zookeeper_coordination.py, then read group_znodes.py for the paths and their contents.
"""
