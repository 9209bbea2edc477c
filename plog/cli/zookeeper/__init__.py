"""``plog zookeeper-shell``: a port of ZooKeeper's shell, for use with Apache ZooKeeper.

The package contains the commands, their texts and the connection, which uses kazoo. The znodes of a
Kafka cluster are read by `plogd.tools.storage`; plog's brokers do not use ZooKeeper. Start with
shell.py and session.py; commands.py contains the table of commands.
"""
