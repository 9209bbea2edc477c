"""Connections to brokers: the cluster's metadata, requests with retries, TLS and SASL.

The ports of the engine (ports.py) and their implementations on sockets and on Twisted reactors
belong here. The meaning of requests does not: the neighboring packages build requests and interpret
responses. Start with cluster.py, through which every request goes, then node.py and
connection.py.
"""
