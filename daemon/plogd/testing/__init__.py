"""A real broker for tests: as a process (broker_process.py) and as pytest fixtures (plugin.py)."""
