"""The controller's work in a cluster: which replicas lead and are in sync, and what brokers learn.

leader_election.py and isr_change.py decide, partition_changes.py writes the decisions, and
broker_updates.py informs the brokers. broker_changes.py and leader_requests.py react to brokers. A
single broker does not need this package.
"""
