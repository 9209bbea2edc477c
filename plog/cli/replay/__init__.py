"""``plog replay``: copy a range of a topic to another topic, at a chosen speed.

What is copied, how far the copy has come and how fast it goes belong here. Reading and sending the
records is the work of the blocking clients in `plog.client.faces`. Start with command.py; plan.py
and pace.py hold the decisions.
"""
