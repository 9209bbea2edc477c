"""``plog verifiable-consumer`` and ``plog verifiable-producer``: clients for system tests.

This package contains the two tools and the JSON events that they print. `plog.cli.perf` measures
performance. Start with verifiable_producer.py and json_events.py.
"""
