"""Membership in a consumer group: joining, heartbeats, revocation and committed offsets.

This package contains all requests that a consumer sends to its group's coordinator.
`plog.client.assignors` decides which member gets which partitions, and `plog.client.consumer`
fetches records. Start with member.py, which controls the order of events, and member_state.py,
which contains the rules. revocation.py decides which partitions a member revokes in an eager or
cooperative rebalance.
"""
