"""Coordinators: state that brokers keep for clients in internal topics.

Consumer groups with their committed offsets are in group, the runtime that keeps any coordinator's
state in a log is in runtime, and producer ids are in producer_ids.py. Reading requests and building
responses belongs to `plogd.apis`. Start with group/group_coordinator.py and
runtime/coordinator_runtime.py.
"""
