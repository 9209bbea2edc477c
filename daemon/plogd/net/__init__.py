"""The network shell: sockets, TLS and threads around the broker.

Listeners, transports, buffers, the order of requests and the ports' implementations for time and
threads belong here. What a request means does not; `plogd.apis` handles it. Start with listeners.py
and follow a connection: transport.py moves its bytes (protocol_connection.py under TLS),
connection.py cuts them into requests, request_queue.py orders them, output_queue.py sends answers.
"""
