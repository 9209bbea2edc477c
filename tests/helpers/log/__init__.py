"""Logs for tests: their files, their images on other disks, and brokers around one log.

Start with log_site.py.
"""
