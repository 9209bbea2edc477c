"""Replication on the side of a follower: fetch from leaders, append, truncate.

This package does not use Twisted. Called on the reactor's thread.
"""
