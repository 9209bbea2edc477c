"""``plog console-consumer`` and ``plog console-producer``: records as text.

This package parses lines into records, and formats records, including those of internal topics, as
lines. The clients themselves are in `plog.client`; tables and JSON of other tools are in
cli/output.py. Start with console_consumer.py, then read record_formatters.py.
"""
