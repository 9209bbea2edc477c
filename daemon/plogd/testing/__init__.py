"""Real brokers for tests: pytest fixtures, a broker in a thread or in a process, a cluster.

This package supports the tests of applications, including control of time and of single requests.
Test doubles for plog's own unit tests are in tests/helpers, except for mock_zookeeper.py, which
clusters of such brokers need. Start with plugin.py for the fixtures, then read running_broker.py
and running_cluster.py.
"""
