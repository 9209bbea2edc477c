"""The group coordinator: members, rebalances and committed offsets of consumer groups.

The state of a group, the rules for changing it and the expiration of offsets belong here.
`plogd.coordinator.runtime` stores that state in `__consumer_offsets`, and `plogd.apis` reads the
requests. Start with group.py for the states and group_metadata_manager.py for the operations;
offset_metadata_manager.py manages committed offsets, and offset_expiration.py decides when they
expire.
"""
