"""The cluster's own state: the store it survives in, and the copy that requests read."""
