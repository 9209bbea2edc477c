"""``plog configs``: describe and alter settings, client quotas and SCRAM users.

This package resolves the entities that the options select, parses assignments, and prints results.
The admin client sends the requests, and the broker validates the settings. Start with command.py,
then read entities.py.
"""
