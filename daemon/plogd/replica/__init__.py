"""The partitions that this broker hosts: appends, reads and delayed requests.

Leadership, high watermarks, fetch sessions and the purgatory belong here. Files and segments do
not; they are in `plogd.log`. Start with replica_manager.py, then partition.py.
"""
