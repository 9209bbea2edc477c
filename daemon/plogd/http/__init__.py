"""The broker's HTTP port: metrics, health and readiness.

A small HTTP server and its pages belong here. Counting does not: metrics are declared in metrics.py
and registered where they are counted. Start with site.py.
"""
