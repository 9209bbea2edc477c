"""Plans that distribute the replicas and leaders of partitions over brokers, without I/O.

`plog rebalance`, `plog broker` and `plog reassign-partitions --generate` read the state of a
cluster, ask this package for better assignments, and have the controller carry them out. The
planner moves as little data as it can: an assignment that is already balanced does not change.

placement.py counts the replicas of brokers, and knows which moves keep racks apart. leveling.py
makes counts equal by moves between brokers. replica_plan.py and leader_plan.py define what is
moved. Start with replica_plan.py.
"""
