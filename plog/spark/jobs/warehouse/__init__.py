"""The job ``warehouse``: topics become Parquet tables by date and hour, each record once.

A table is a folder for each topic, with a folder for each hour. Start with job.py, which writes a
batch. `WarehouseFolder` (warehouse_folder.py) publishes the files of a batch, merge_planning.py
selects the hours to merge, and hour_merge.py replaces the files of one hour. All changes of files
go through `TableFiles` (table_files.py), so that tests can interrupt the job before each of them.

Invariants: a file that readers see is complete, and each record is in at most one of them. After a
batch has completed, each of its records is in exactly one.
"""
