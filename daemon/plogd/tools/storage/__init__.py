"""``plog storage``: format log directories, and import the data of a Kafka broker.

Reading a stopped broker's directories, planning the import and carrying it out belong here. Reading
and printing a metadata log is in `plogd.tools.metadata`. Start with command.py; for an import,
read import_plan.py, then import_writer.py.
"""
