"""``plog broker``: prepare brokers for maintenance, replace them, and give them leaders again.

command.py contains the tools that change replicas and leaders, and may_stop.py the check before a
broker is stopped. The moves are those of `plog.cli.rebalance`.
"""
