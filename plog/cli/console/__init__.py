"""``plog console-consumer`` and ``plog console-producer``: records as text.

Reading lines as records, and formatting records and the internal topics as lines, belong here.
The clients themselves are in `plog.client`, and tables or JSON for other tools are in
cli/output.py. Start with console_consumer.py, then read record_formatters.py.
"""
