"""ACLs and SCRAM credentials: what they are, and which ones are valid.

Rules about these values belong here; the broker stores both but does not enforce them yet. Changing
and storing them is the work of `plogd.controller`, and TLS is in `plogd.net`. Start with acl.py.
"""
