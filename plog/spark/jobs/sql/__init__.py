"""The job ``sql``: run a query whose tables are topics.

Start with job.py. A topic becomes a view (topic_views.py) when Spark's analyzer does not find a
table with its name. The columns of JSON values are found in a sample (json_fields.py).
"""
