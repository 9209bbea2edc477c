"""The asyncio face: `Producer`, `Consumer` and `Admin` as coroutines, on any event loop.

The engine runs in the loop's own thread, on a reactor made over the loop; a client belongs to the
loop in which it is first used, or entered with ``async with``. The behavior itself belongs to the
engine; a docstring here says only how the method differs from the other faces. Start with base.py;
the reactor is in network/loop_reactor.py.
"""

from plog.client.faces.asyncio.admin import Admin
from plog.client.faces.asyncio.consumer import Consumer
from plog.client.faces.asyncio.producer import Producer, RecordAwaitable

__all__ = ["Admin", "Consumer", "Producer", "RecordAwaitable"]
