"""TLS listeners: certificates, handshakes, and connections whose bytes are encrypted.

It contains the code that loads and reloads PEM files, the TLS context, and the port and its
connections. The order and the memory of requests are in `plogd.net`, which treats TLS and plain
connections alike. Start with tls_files.py, then read tls_port.py and protocol_connection.py.
"""
