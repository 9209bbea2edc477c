"""Membership in a consumer group: joining, heartbeats, revocation and committed offsets.

This package contains all requests that a consumer sends to its group's coordinator.
`plog.client.zookeeper` contains those to ZooKeeper, which can coordinate a group instead of a
broker. `plog.client.assignors` decides which member gets which partitions, and
`plog.client.consumer` fetches records. Start with member.py, which controls the order of events,
coordination.py, the interface to the coordinator, and member_state.py, which contains the rules.
revocation.py decides which partitions a member revokes in an eager or cooperative rebalance.
"""
