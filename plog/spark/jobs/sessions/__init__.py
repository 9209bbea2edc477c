"""The job ``sessions``: sessions of users, which end after a gap without records.

Start with job.py. A session is written once, when its gap has passed by the watermark.
"""
