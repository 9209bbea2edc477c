"""The group coordinator: members, rebalances and committed offsets of consumer groups.

A group's state, the rules for changing this state, and the expiration of offsets belong here.
`plogd.coordinator.runtime` stores the state in `__consumer_offsets`, and `plogd.apis` reads the
requests. Start with group.py for the states and group_metadata_manager.py for the operations.
offset_metadata_manager.py manages committed offsets, and offset_expiration.py decides when they
expire.
"""
