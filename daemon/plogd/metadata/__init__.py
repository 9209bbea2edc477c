"""The cluster's state: the store that keeps it, and the cache that requests read.

The `MetadataStore` interface, its embedded implementation and the image of its records belong here.
`plogd.controller` decides on changes. Start with store.py, then embedded_store.py.
"""
