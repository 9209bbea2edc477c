"""``plog console-consumer`` and ``plog console-producer``: write and read records as text.

This package parses lines into records, and formats records as lines, including records of internal
topics. The clients themselves are in `plog.client`; cli/output.py prints the tables and JSON of
other tools. Start with console_consumer.py, then read record_formatters.py.
"""
