"""The Twisted face: `Producer`, `Consumer` and `Admin` whose methods return Deferreds.

The clients run on the reactor passed to them, by default the installed one. The engine defines the
behavior; a docstring here says only how a method differs from the other faces. Start with base.py;
streams.py has protocols, factories and a service with flow control.
"""

from plog.client.faces.twisted.admin import Admin
from plog.client.faces.twisted.consumer import Consumer
from plog.client.faces.twisted.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
