"""The cluster's state: the store that keeps it, and the cache that requests read.

The `MetadataStore` interface, its embedded implementation and the image of its records belong here.
Deciding what changes does not; that is the work of `plogd.controller`. Start with store.py, then
embedded.py.
"""
