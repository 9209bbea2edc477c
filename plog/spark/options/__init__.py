"""The options of queries: names, values, and what they say about topics and offsets.

Options are parsed and checked here; lookups that resolve them belong in `plog.spark.reader`. All
code is pure. Start with source_options.py and sink_options.py.
"""
