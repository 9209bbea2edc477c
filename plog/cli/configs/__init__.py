"""``plog configs``: describe and alter settings, client quotas and SCRAM users.

The entities that options name, the values they assign and what is printed belong here. The
requests belong to the admin client, and the meaning of a setting belongs to the broker. Start with
command.py, then read entities.py.
"""
