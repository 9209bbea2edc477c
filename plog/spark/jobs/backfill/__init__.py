"""The job ``backfill``: a time range in batches, then the stream, without gap or overlap.

Start with job.py. The offsets at which the stream takes over are stored before anything is read
(backfill_plan.py), so that a restart at any point continues with the same ones.
"""
