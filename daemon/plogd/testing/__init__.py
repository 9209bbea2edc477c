"""A real broker for tests: pytest fixtures, a broker in a thread, a broker in a process.

What an application's tests need belongs here, including control of time and of single requests.
Doubles for plog's own unit tests do not; they are in tests/helpers. Start with plugin.py for the
fixtures, then running_broker.py.
"""
