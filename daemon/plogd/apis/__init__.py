"""Request handlers: one file per family of Kafka's APIs, and the table of the APIs served.

A handler reads a request, calls the core and builds the response. Decisions about logs, groups and
the cluster belong in the core, and no handler imports Twisted. Start with api_table.py and
heartbeat.py; dispatch.py passes a frame to its handler.
"""
