"""The group coordinator: members, rebalances and committed offsets of consumer groups.

The state of a group, the rules of its changes and the expiration of offsets belong here. Keeping
that state in `__consumer_offsets` is the work of `plogd.coordinator.runtime`, and the requests are
read in `plogd.apis`. Start with group.py for the states and group_metadata_manager.py for the
operations.
"""
