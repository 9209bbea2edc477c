"""``plog consumer-groups``: list, describe and delete groups, and reset their offsets.

The options of the tool, its reports and its offset resets belong here. The requests belong to the
admin client, in client/admin/groups.py and client/admin/group_offsets.py. Start with command.py.
"""
