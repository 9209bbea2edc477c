"""The job ``search-index``: an index of the words in topics, for ``plog search``.

Start with job.py. The tasks write the shards of the index (shard_writing.py); the format of the
index is in `plog.search`.
"""
