"""Tools that work on a broker's files or start one, apart from the broker itself.

``plog storage``, ``plog dump-log`` and ``plog metadata-shell`` belong here because they need the
broker's packages. Tools that only talk to a cluster do not; they are in `plog.cli`. Start with
storage/command.py or quickstart.py.
"""
