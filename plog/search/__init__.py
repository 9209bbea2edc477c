"""Search indexes: folders with SQLite databases, in which ``plog search`` finds records by words.

An index has a fixed number of shards (index_folder.py). The shard of a record follows from its
topic, partition and offset, which also identify it in the shard (shard.py). A record that is added
again replaces itself. index_search.py searches all shards and merges what it finds.

The package uses only the standard library. The Spark job `plog.spark.jobs.search_index` writes
indexes.

Source: SQLite FTS5 (https://sqlite.org/fts5.html).
"""
