"""Connections to brokers: the cluster's metadata, requests with retries, TLS and SASL.

The ports of the engine (ports.py) and their implementations on sockets and on Twisted reactors
belong here. What a request means does not: the packages beside this one build requests and read
the responses. Start with cluster.py, through which every request goes, then node.py and
connection.py.
"""
