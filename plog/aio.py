"""The client library for asyncio: `Producer`, `Consumer`, `Admin`. See plog.client.asyncio_face."""

from plog.client.asyncio_face import Admin, Consumer, Producer, RecordAwaitable

__all__ = ["Admin", "Consumer", "Producer", "RecordAwaitable"]
