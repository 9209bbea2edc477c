"""Coordinators: state that brokers keep for clients in internal topics.

`group` implements consumer groups and their committed offsets, `runtime` stores the state of any
kind of coordinator in a log, and producer_ids.py allocates producer ids. Reading requests and
building responses belong in `plogd.apis`. Start with group/group_coordinator.py and
runtime/coordinator_runtime.py.
"""
