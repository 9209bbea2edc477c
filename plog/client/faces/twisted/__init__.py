"""The Twisted face: `Producer`, `Consumer` and `Admin` whose methods return Deferreds.

The clients run on the reactor they are given, which is the installed one by default. The behavior
itself belongs to the engine; a docstring here says only how the method differs from the other
faces. Start with base.py; streams.py has protocols, factories and a service with flow control.
"""

from plog.client.faces.twisted.admin import Admin
from plog.client.faces.twisted.consumer import Consumer
from plog.client.faces.twisted.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
