"""Audits of a cluster: read the reports of producers, have topics counted, and compare both.

The rules are in `plog.audit`. ``plog audit`` counts with record_counts.py, and ``plog spark audit``
with Spark. Start with audit_run.py, which reads everything in the order that makes the comparison
exact; `plog.client.topic_reader` sends its requests.
"""
