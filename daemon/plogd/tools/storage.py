"""``plog storage``: tools that work on the data directories of a broker that does not run.

Found by the `plog` command through the entry point group ``plog.commands``; each tool is a module
beside this one.
"""

from __future__ import annotations

import argparse

from plogd.tools.storage_import import configure_import


def configure(parser: argparse.ArgumentParser) -> None:
    """Look after data directories, offline."""
    tools = parser.add_subparsers(title="tools", metavar="TOOL", required=True)
    summary = "Adopt the data of a stopped Apache Kafka broker."
    configure_import(tools.add_parser("import", help=summary, description=summary))
