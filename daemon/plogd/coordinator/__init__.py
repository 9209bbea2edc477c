"""Coordinators: state that brokers keep for clients in internal topics.

`group` contains consumer groups with their committed offsets; `runtime` stores the state of any
kind of coordinator in a log; producer_ids.py allocates producer ids. Reading requests and building
responses belong in `plogd.apis`. Start with group/group_coordinator.py and
runtime/coordinator_runtime.py.
"""
