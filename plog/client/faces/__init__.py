"""The classes that applications use: each client as a blocking, an asyncio and a Twisted class.

A face turns the engine's coroutines into methods that block, are awaited or return a Deferred.
Protocol rules do not belong here: the engine implements them once for all faces. Start with
method_adapters.py, then compare one class across the three faces, such as their producer.py.
"""
