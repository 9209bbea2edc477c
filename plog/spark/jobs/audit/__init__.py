"""The job ``audit``: count the records of topics, and compare them with the reports of producers.

Start with job.py. The comparison is in `plog.audit`, and its order of steps in `plog.client.audit`.
"""
