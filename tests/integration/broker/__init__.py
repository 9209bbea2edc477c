"""The broker as a process: clients of several kinds, restarts, TLS, adoption, hostile requests."""
