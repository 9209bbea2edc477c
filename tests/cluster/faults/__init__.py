"""Real faults of a cluster: three brokers and three ZooKeeper servers, all on their own machines.

The machines are network namespaces (machines.py), so that any connection can be cut, in one or both
directions. site.py runs the servers, load.py the clients, and fault_kinds.py contains the faults.
history.py checks what the clients have seen. ``python -m tests.cluster.faults --minutes 20`` picks
faults at random; tests/cluster/test_faults.py runs selected ones.
"""
