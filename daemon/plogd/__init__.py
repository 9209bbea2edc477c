"""The plog broker: a core that performs no I/O itself, and the Twisted code around it.

The core (log, replica, coordinator, controller, apis) accesses time, files and threads only through
the ports in ports.py; net, http, service.py and machine.py implement the ports. Code that clients
and the broker share belongs in `plog`. Start with broker.py, which builds the core, then read
docs/architecture.md.
"""
