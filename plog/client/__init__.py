"""The client library: producers, consumers and the admin client.

The engine is a set of coroutines over the ports in network/ports.py, and the faces give it a
blocking, an asyncio and a Twisted interface. Encoding requests is the work of `plog.wire`, encoding
records that of `plog.records`, and nothing here imports the broker. Start with producer/core.py and
consumer/core.py, or with faces/blocking for what an application sees.
"""
