"""The consumer's engine, which tracks positions, fetches batches and hands out records.

Subscriptions, offset lookups, fetch sessions and buffers belong here, as do the readers that need
no group. Joining a group and committing offsets are in `plog.client.group`, and the classes that
applications use are in `plog.client.faces`. Start with core.py, then read fetcher.py and
fetch_collector.py.

Four files deal with offsets: offset_fetcher.py finds and validates the positions of assigned
partitions, offset_reset.py decides when auto.offset.reset applies, offset_queries.py answers the
application's queries about log ends and timestamps, and offset_lookup.py sends ListOffsets to the
leaders for offset_fetcher.py and offset_queries.py.
"""
