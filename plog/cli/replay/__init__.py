"""``plog replay``: copy a range of a topic to another topic, at a chosen speed.

This package plans the copy, tracks its progress and controls its speed. The blocking clients of
`plog.client.faces` read and send the records. Start with command.py; plan.py selects the offsets,
and pace.py determines when and in which order records are sent.
"""
