"""Queries that write: each row becomes a record.

Start with record_writers.py and record_writing.py. Streams that write each row once start in
deduplicating_writer.py; deduplication.py has the rules, and sink_notes.py the notes that the rules
need. Options are parsed in `plog.spark.options`.
"""
