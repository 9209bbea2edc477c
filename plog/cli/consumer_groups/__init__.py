"""``plog consumer-groups``: list, describe and delete groups, and reset their offsets.

This package contains the tool's options and reports, and computes the offsets for resets. The admin
client sends the requests, in client/admin/groups.py and client/admin/group_offsets.py. Start with
command.py.
"""
