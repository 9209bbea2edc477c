"""Records of Kafka's internal topics and metadata log, with a module for each family of records.

The modules declare keys and values, and contain functions that select a declaration by the type in
the key. Coordinators and the controller apply the records. Start with group_records.py.
"""
