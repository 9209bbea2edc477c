"""plog's own client library in a cluster: its engine runs on the simulated network and clock.

The engine is the library's real code below the faces: metadata, leaders, coordinators, retries and
the group protocol. `LibraryNetwork` implements its port `Network`, and passes each request to a
`Watcher`, which compares it and its response with the histories of the run.
"""
