"""Request handlers: one file for each family of Kafka's APIs, and the table of them.

A handler reads a request, calls the core and builds the response. Decisions about logs, groups and
the cluster do not belong here but to the core, and no handler imports Twisted. Start with
api_table.py and heartbeat.py; dispatch.py takes a frame to its handler.
"""
