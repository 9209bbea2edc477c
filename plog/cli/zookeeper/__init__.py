"""``plog zookeeper-shell``: a port of ZooKeeper's shell, for use with Apache ZooKeeper.

The package contains the commands, their texts, and the connection, which uses kazoo. plog's brokers
do not use ZooKeeper; `plogd.tools.storage` imports the znodes of Kafka clusters. Start with
shell.py and session.py; commands.py contains the table of commands.
"""
