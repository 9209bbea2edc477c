"""``plog spark``: run a Spark job, and pack what its executors need.

The checks before a job and its environment belong here; the data source is `plog.spark`. Nothing
here imports pyspark. Start with command.py; job_environment.py builds the environment of a job,
and pack.py the archive.
"""
