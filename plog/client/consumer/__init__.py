"""The consumer's engine: it tracks positions, fetches batches and hands out records.

Subscriptions, offset look-ups, fetch sessions and buffers belong here, as do the readers that need
no group. Joining a group and committing offsets are in `plog.client.group`, and what applications
call is in `plog.client.faces`. Start with core.py, then read fetcher.py and fetch_collector.py.
"""
