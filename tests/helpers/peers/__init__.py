"""Brokers that ask each other, and the tests that every implementation of `Peers` must pass.

A `PeerSite` is a cluster of simulated brokers in virtual time. `InMemorySite` uses the test double,
`ConnectionsSite` the connections of a real broker over the same network. conformance.py contains
the tests.
"""
