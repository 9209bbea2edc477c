"""Typed columns from the values of records, and the rows whose values could not be decoded.

Start with decoded_values.py and dead_letter_rows.py. The functions work on DataFrames of any source
with a column of values; reading and writing belong in `plog.spark.reader` and `plog.spark.sink`.
"""
