"""The coordinator runtime: shards of state that are loaded from a log and written to it.

Loading, replay, timers and responses that wait for durable records belong here, for any kind of
coordinator. The rules for groups and offsets belong in `plogd.coordinator.group`. Start with
shard.py, which contains the interface, then read shard_runtime.py.

Source: Kafka 4.0 CoordinatorRuntime.
"""
