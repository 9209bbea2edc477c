"""Members of consumer groups, and worlds to run them in.

Frames of the group APIs, groups of plog's and other clients, and scenarios that several tests share
belong here. Start with raw_group.py for a group of frames, and group_world.py for coordinators.
"""
