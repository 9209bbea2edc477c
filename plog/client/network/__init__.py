"""Connections to brokers: the cluster's metadata, requests with retries, TLS and SASL.

This package contains the engine's ports (ports.py) and their implementations on sockets and on
Twisted reactors. Other packages of `plog.client` build the requests and interpret the responses.
Start with cluster.py, which sends most requests, then read node.py and connection.py.
"""
