"""The Twisted face: `Producer`, `Consumer` and `Admin` whose methods return Deferreds.

The clients run on the reactor that the caller passes, by default the installed reactor. The engine
defines the behavior; docstrings here describe only differences from the other faces. Start with
base.py. Protocols, factories and a service with flow control are in streams.py.
"""

from plog.client.faces.twisted.admin import Admin
from plog.client.faces.twisted.consumer import Consumer
from plog.client.faces.twisted.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
