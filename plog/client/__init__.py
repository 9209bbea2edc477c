"""The client library: producers, consumers and the admin client.

The client engine consists of coroutines that use the ports in network/ports.py for all I/O. The
faces are the engine's blocking, asyncio and Twisted interfaces. `plog.wire` encodes requests and
`plog.records` encodes records; this package never imports the broker. Start with producer/core.py
and consumer/core.py, or with faces/blocking for the application's view.
"""
