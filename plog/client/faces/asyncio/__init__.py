"""The asyncio face: `Producer`, `Consumer` and `Admin` with coroutine methods, on any event loop.

The engine runs in the loop's own thread, on a reactor that wraps the loop. A client belongs to the
loop in which it is first used or entered with ``async with``. The engine defines the behavior;
docstrings here describe only differences from the other faces. Start with base.py; the reactor is
in network/loop_reactor.py.
"""

from plog.client.faces.asyncio.admin import Admin
from plog.client.faces.asyncio.consumer import Consumer
from plog.client.faces.asyncio.producer import Producer, RecordAwaitable

__all__ = ["Admin", "Consumer", "Producer", "RecordAwaitable"]
