"""Request handlers: one file per family of Kafka's APIs, and the table of supported APIs.

A handler reads a request, calls the core and builds the response. Decisions about logs, groups and
the cluster belong in the core, and no handler imports Twisted. Start with api_table.py and
heartbeat.py; dispatch.py decodes each request and calls its handler.
"""
