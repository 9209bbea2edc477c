"""The classes that applications use: each client as a blocking, an asyncio and a Twisted class.

A face adapts the engine's coroutines: its methods block, are awaited or return a Deferred. The
engine implements all protocol rules once for all faces, so they do not belong here. Start with
method_adapters.py, then compare one module, such as producer.py, across the three faces.
"""
