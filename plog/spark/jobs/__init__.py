"""The jobs of ``plog spark JOB``: queries that read topics and write tables, topics or the console.

Each job is a function with a session and its options, such as `run_warehouse(spark, options)`, so
that programs can import it; the command lines are in `plog.cli.spark.jobs`. Start with
job_source.py, which describes what a job reads, and with the module or package of a job. Whatever
can be tested without Spark does not import pyspark.
"""
