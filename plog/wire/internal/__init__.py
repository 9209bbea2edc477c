"""Records of Kafka's internal topics and of its metadata log, with a module for each family.

The modules declare keys and values, and contain the functions that select one by its type.
Coordinators and the controller apply the records. Start with group_records.py.
"""
