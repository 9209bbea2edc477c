"""``plog verifiable-consumer`` and ``plog verifiable-producer``: clients for system tests.

The two tools and the JSON events they print belong here. Speed is measured in `plog.cli.perf`.
Start with verifiable_producer.py and json_events.py.
"""
