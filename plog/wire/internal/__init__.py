"""The records that Kafka keeps in its internal topics and in its metadata log, by family.

Declarations of keys and values belong here, with the functions that choose one by its type. What a
coordinator or the controller does with a record does not. Start with group_records.py.
"""
