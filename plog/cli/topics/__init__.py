"""``plog topics``: create, alter, delete, list and describe topics.

The options of the tool and the report of ``--describe`` belong here. The requests belong to the
admin client, in client/admin/topics.py and client/admin/topic_descriptions.py. Start with
command.py.
"""
