"""A pipeline from producers to Spark's jobs, in which an audit accounts for every record.

``make pipeline`` runs it: audited producers send clicks and log lines to a broker, Spark's jobs
read them, and the broker is killed and restarted in the middle. An audit then compares what was
sent with what the topics contain. Finally, one record is lost and another one is repeated in the
same minute, and the audit finds both. The result is a page with plots.

Start with pipeline.py, which contains the steps.
"""
