"""The broker's HTTP port: metrics, health and readiness.

It contains a small HTTP server and its pages. Metrics are declared in plogd/metrics.py and
registered by the modules that count them. Start with site.py.
"""
