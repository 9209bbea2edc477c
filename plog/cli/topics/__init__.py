"""``plog topics``: create, alter, delete, list and describe topics.

This package contains the tool's options and the report of ``--describe``. The admin client sends
the requests, in client/admin/topics.py and client/admin/topic_descriptions.py. Start with
command.py.
"""
