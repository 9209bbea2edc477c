"""The controller: it creates, changes and deletes topics, ACLs, quotas and users.

Decisions about the cluster's state belong here; the controller writes them to the metadata store.
`plogd.metadata` implements the store, and `plogd.replica` hosts the partitions. Start with
controller.py, then active_controller.py.
"""
