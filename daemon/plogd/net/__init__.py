"""The network shell: sockets, TLS and threads around the broker.

Listeners, transports, buffers, the order of requests and the threads for jobs belong here. Request
handling does not: see `plogd.apis`. Start with listeners.py and follow a connection: transport.py
moves its bytes (tls/protocol_connection.py with TLS), connection.py splits them into requests,
request_queue.py orders them, output_queue.py sends the responses.
"""
