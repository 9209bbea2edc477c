"""The blocking face: `Producer`, `Consumer` and `Admin` for synchronous code, in any thread.

The engine runs on a private reactor in a daemon thread, and each call waits for its result. The
engine defines the behavior; docstrings here describe only differences from the other faces. Start
with base.py. When the process exits, process_exit.py flushes and closes open clients.
"""

from plog.client.faces.blocking import process_exit as process_exit
from plog.client.faces.blocking.admin import Admin
from plog.client.faces.blocking.consumer import Consumer
from plog.client.faces.blocking.producer import Producer
from plog.client.faces.blocking.record_future import RecordFuture

__all__ = ["Admin", "Consumer", "Producer", "RecordFuture"]
