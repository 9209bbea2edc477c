"""A segment of a log: its records, its offset index and its time index.

Reading and appending within one segment belong here, and so do sealing a segment and rebuilding its
indexes. Choosing the segment and enforcing retention belong to the package above. Start with
log_segment.py, then read offset_index.py.
"""
