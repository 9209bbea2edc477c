"""Connections to brokers: the cluster's metadata, requests with retries, TLS and SASL.

The ports of the engine (ports.py) and their implementations on sockets and on Twisted reactors
belong here. Other packages of `plog.client` build the requests and interpret the responses. Start
with cluster.py, through which every request goes, then node.py and connection.py.
"""
