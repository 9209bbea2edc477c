"""The command lines of Spark jobs: a module for each job, with its options and their defaults.

Parsers work without pyspark and Java, for ``--help`` and for the checks before a job starts. The
jobs themselves are in `plog.spark.jobs`. Start with job_table.py, which lists them.
"""
