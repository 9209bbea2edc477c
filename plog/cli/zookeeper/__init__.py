"""``plog zookeeper-shell``: ZooKeeper's own shell, for a real ZooKeeper.

Commands, their texts and the connection through kazoo belong here. Reading a Kafka cluster's znodes
belongs to `plogd.tools.storage`; plog's brokers do not use ZooKeeper. Start with shell.py and
session.py; commands.py has the table of commands.
"""
