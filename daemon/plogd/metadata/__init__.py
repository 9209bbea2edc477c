"""The cluster's state: the store that persists it, and the cache from which requests read it.

The `MetadataStore` interface, its embedded implementation, and the image of the stored records
belong here. `plogd.controller` decides on changes. Start with store.py, then embedded_store.py.
"""
