"""What applications call: the same clients as blocking, asyncio and Twisted classes.

A face turns the engine's coroutines into methods that block, are awaited or return a Deferred.
Rules of the protocol do not belong here; they are written once, in the engine. Start with
method_adapters.py, then compare one class of the three faces, such as their producer.py.
"""
