"""The controller's work in a cluster: which replicas lead and are in sync, and what brokers learn.

leader_election.py and isr_change.py decide, control_requests.py and broker_channels.py inform the
brokers. A single broker does not need this package.
"""
