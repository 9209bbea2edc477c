"""A segment of a log: the records, the offset index and the time index.

This package reads, appends to, and seals one segment, and rebuilds its indexes. The package above
selects the segment and enforces retention. Start with log_segment.py, then read offset_index.py.
"""
