"""The client library for asyncio: `Producer`, `Consumer`, `Admin`."""

from plog.client.faces.asyncio import Admin, Consumer, Producer, RecordAwaitable

__all__ = ["Admin", "Consumer", "Producer", "RecordAwaitable"]
