"""The runtime of coordinators: shards that are loaded from a log and written to it.

Loading, replaying, timers and responses that wait for durable records belong here, for any kind of
coordinator. The rules of groups and offsets do not; they are in `plogd.coordinator.group`. Start
with shard.py, the interface, then read shard_runtime.py.

Source: Kafka 4.0 CoordinatorRuntime.
"""
