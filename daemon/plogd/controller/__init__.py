"""The controller: it creates, changes and deletes topics, ACLs, quotas and users.

Decisions about the state of the cluster belong here; they become changes to the metadata store.
`plogd.metadata` stores them, and `plogd.replica` hosts the partitions. Start with
controller.py.
"""
