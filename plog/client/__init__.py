"""The client library: producers, consumers and the admin client.

The engine is a set of coroutines over the ports in network/ports.py, and the faces provide a
blocking, an asyncio and a Twisted interface to it. `plog.wire` encodes requests and `plog.records`
encodes records; nothing here imports the broker. Start with producer/core.py and consumer/core.py,
or with faces/blocking for the application's view.
"""
