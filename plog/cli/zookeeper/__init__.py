"""``plog zookeeper-shell``: ZooKeeper's own shell, for a real ZooKeeper.

Commands, their texts and the connection through kazoo belong here. A broker's use of ZooKeeper does
not, nor does reading a Kafka cluster's znodes, which is in `plogd.tools.storage`. Start with
shell.py and session.py; commands.py is the table of commands.
"""
