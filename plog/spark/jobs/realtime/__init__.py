"""The job ``realtime``: counts and the most frequent names in windows of time.

Start with job.py. A window's result is written once its end is older than the watermark.
"""
