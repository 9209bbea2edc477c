"""The broker's network layer: sockets, TLS, and the threads that run blocking jobs.

It contains the listeners, the transports, the buffers and the order of a connection's requests.
Requests are handled in `plogd.apis`. Start with listeners.py and follow a connection: transport.py
moves its bytes (tls/protocol_connection.py with TLS), connection.py splits them into requests,
request_queue.py orders the requests, and output_queue.py sends the responses.
"""
