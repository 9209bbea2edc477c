"""ACLs and SCRAM credentials: their values and validation.

This package contains the rules about these values; the broker stores both but does not enforce them
yet. `plogd.controller` changes and stores them, and TLS is in `plogd.net`. Start with acl.py.
"""
