"""``plog storage``: tools that work on the data directories of a stopped broker.

The `plog` command finds this module through its table and the entry point group
``plog.commands``. Each tool is a module of this package.
"""

from __future__ import annotations

import argparse

from plog.cli.feature_dependencies import configure_feature_dependencies, configure_version_mapping
from plog.cli.parser import first_line
from plogd.tools.storage.format_command import (
    configure_format,
    configure_info,
    configure_random_uuid,
)
from plogd.tools.storage.import_command import configure_import
from plogd.tools.storage.to_zookeeper import configure_to_zookeeper

_TOOLS = {
    "format": configure_format,
    "import": configure_import,
    "info": configure_info,
    "random-uuid": configure_random_uuid,
    "to-zookeeper": configure_to_zookeeper,
    "version-mapping": configure_version_mapping,
    "feature-dependencies": configure_feature_dependencies,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Format, inspect and import data directories, offline."""
    tools = parser.add_subparsers(title="tools", metavar="TOOL", required=True)
    for name, configure_tool in _TOOLS.items():
        summary = first_line(configure_tool.__doc__)
        configure_tool(tools.add_parser(name, help=summary, description=summary))
