"""The shell around the broker: sockets, threads and the clock.

A connection's way through the files: listener_port.py accepts it, transport.py moves its bytes
(protocol_connection.py where TLS does), connection.py cuts them into requests and takes turns,
request_queue.py decides when each may start and in which order the answers leave, output_queue.py
sends them. connections.py knows them all; thread_jobs.py and system_ports.py implement plogd/ports.py.
"""
