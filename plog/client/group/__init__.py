"""Membership in a consumer group: joining, heartbeats, revocation and committed offsets.

Everything a consumer says to its group's coordinator belongs here. Which member gets which
partition is decided in `plog.client.assignors`; fetching records is the work of
`plog.client.consumer`. Start with member.py, which owns the order of events, and member_state.py,
which holds the rules.
"""
