"""TLS listeners: certificates, handshakes and connections whose bytes are encrypted.

Loading and reloading of PEM files, the TLS context, the port and its connections belong here. The
order and the memory of requests do not: see `plogd.net`, which treats both kinds of connections
alike. Start with tls_files.py, then read tls_port.py and protocol_connection.py.
"""
