"""The controller: it creates, changes and deletes topics, ACLs, quotas and users.

Decisions about the cluster's state belong here; they become changes of the metadata store. Storing
them is the work of `plogd.metadata`, and hosting partitions that of `plogd.replica`. Start with
controller.py.
"""
