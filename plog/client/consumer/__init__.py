"""The consumer's engine: it tracks positions, fetches batches and returns records.

This package contains subscriptions, offset lookups, fetch sessions and buffers, and readers that
work without a group. `plog.client.group` joins groups and commits offsets, and `plog.client.faces`
contains the classes that applications use. Start with core.py, then read fetcher.py and
fetch_collector.py.

Four modules deal with offsets. offset_fetcher.py finds and validates the positions of assigned
partitions. offset_reset.py decides when auto.offset.reset applies. offset_queries.py answers the
application's queries about log ends and timestamps. offset_lookup.py sends the ListOffsets requests
of offset_fetcher.py and offset_queries.py to the leaders.
"""
