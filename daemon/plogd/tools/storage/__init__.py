"""``plog storage``: format log directories, and import the data of a Kafka broker.

This package reads a stopped broker's directories, plans the import and executes the plan.
`plogd.tools.metadata` reads and prints metadata logs. Start with command.py; for an import, read
import_plan.py, then import_writer.py.
"""
