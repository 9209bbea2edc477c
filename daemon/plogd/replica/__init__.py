"""The partitions that this broker hosts: appends, reads and delayed requests.

Leadership, high watermarks, fetch sessions and the purgatory belong here. Files and segments belong
to `plogd.log`. Start with replica_manager.py, then read partition.py. `fetch` contains the reads,
`cluster` the roles of replicas if there are other brokers, and `follower` copies their records.
"""
