"""Tools that work on a broker's files, or that start a broker.

``plog storage``, ``plog dump-log`` and ``plog metadata-shell`` are in this package because they
need the broker's packages. Tools that only connect to a cluster are in `plog.cli`. Start with
storage/command.py or quickstart.py.
"""
