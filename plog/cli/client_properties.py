"""Read client settings from a file, from properties on the command line, and from flags.

As in Kafka's tools, properties override the file, and flags override both.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from plog.cli.options import (
    UsageError,
    add_command_config_option,
    add_property_option,
    key_value,
    read_properties,
)

if TYPE_CHECKING:
    from plog.client.settings import ClientSettings

SERVERS: Final = "bootstrap.servers"


def add_client_options(parser: argparse._ActionsContainer, role: str) -> None:
    """Add ``--command-config``, ``--command-property`` and their older names for a `role`."""
    add_client_config_option(parser, role)
    add_property_option(
        parser,
        # KIP-1147 gave the options of all tools one name; scripts still use the names of the role.
        "--command-property",
        f"--{role}-property",
        dest="command_properties",
        description=f"{role} setting; overrides the file",
    )


def add_client_config_option(parser: argparse._ActionsContainer, role: str) -> None:
    """Add ``--command-config``, and its older name for a client `role`."""
    add_command_config_option(parser, f"--{role}.config", role=role)


def add_client_property_list(
    parser: argparse._ActionsContainer, *older: str, description: str = "client settings"
) -> None:
    """Add ``--command-property``, which accepts several values, as in Kafka's perf tests."""
    parser.add_argument(
        "--command-property",
        *older,
        dest="command_properties",
        action="extend",
        nargs="+",
        default=[],
        type=key_value,
        metavar="NAME=VALUE",
        help=description,
    )


def topic_pattern(text: str) -> str:
    """Return `text` if it is a valid regular expression, for use as the type of an option."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a regular expression: {error}") from None
    return text


def merged(file: str | None, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the properties in `file`, if there is one, overridden by `given`."""
    # Of a repeated property, the last one counts, as in the file.
    return {**(read_properties(file) if file else {}), **dict(given)}


def client_config(
    arguments: argparse.Namespace,
    flags: Mapping[str, object] = {},
    *,
    defaults: Mapping[str, object] = {},
) -> dict[str, object]:
    """Merge all settings: `flags` override file and properties, which override `defaults`."""
    config: dict[str, object] = dict(defaults)
    config |= merged(arguments.command_config, getattr(arguments, "command_properties", ()))
    # A flag that is not given keeps the client's own default. The defaults of Kafka's old scripts
    # (three retries, a request timeout of 1.5 s) lose records when a broker restarts.
    config |= {name: value for name, value in flags.items() if value is not None}
    # Some tools do not require the option, because the file can name the servers.
    if arguments.bootstrap_servers is not None:
        config[SERVERS] = arguments.bootstrap_servers
    if not config.get(SERVERS):
        raise UsageError("cannot connect: no server specified; use --bootstrap-server HOST:PORT")
    return config


def known_to(table: type[ClientSettings], config: Mapping[str, object]) -> dict[str, object]:
    """Return the settings in `config` that `table` defines, for tools that use several clients."""
    from plog.settings import settings_of

    # A client rejects settings that only another client has.
    names = {x for row in settings_of(table).values() for x in (row.name, *row.aliases)}
    return {name: value for name, value in config.items() if name in names}
