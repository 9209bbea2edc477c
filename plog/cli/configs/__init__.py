"""``plog configs``: describe and alter settings, client quotas and SCRAM users.

This package resolves the entities that the options select, parses assignments, and prints results.
The requests belong to the admin client, and the meaning of a setting belongs to the broker. Start
with command.py, then read entities.py.
"""
