"""The plog broker: a pure core, and a thin Twisted shell around it.

The core (log, replica, coordinator, controller, apis) reaches time, files and threads only through
the ports in ports.py, and the shell (net, http, service.py, machine.py) implements them. Code that
clients and the broker share belongs in `plog`. Start with broker.py, which builds the core, then
read docs/architecture.md.
"""
