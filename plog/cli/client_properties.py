"""Where a tool's client has its settings from: a file, properties on the line, and flags.

The later ones win, as with Kafka's tools. A flag that is not given leaves the client's own default:
the scripts' ancient ones (three retries, 1.5 s for a request) lose records when a broker restarts.
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
    """``--command-config`` and ``--command-property``, with the names a `role`'s tools had once."""
    add_client_config_option(parser, role)
    add_property_option(
        parser,
        "--command-property",
        f"--{role}-property",
        dest="command_properties",
        what=f"a setting of the {role}, before those of the file",
    )


def add_client_config_option(parser: argparse._ActionsContainer, role: str) -> None:
    """``--command-config`` alone."""
    add_command_config_option(parser, f"--{role}.config", role=role)


def add_client_property_list(
    parser: argparse._ActionsContainer, *older: str, what: str = "settings of the client"
) -> None:
    """``--command-property`` as the perf tests have it: several behind one name."""
    parser.add_argument(
        "--command-property",
        *older,
        dest="command_properties",
        action="extend",
        nargs="+",
        default=[],
        type=key_value,
        metavar="NAME=VALUE",
        help=what,
    )


def topic_pattern(text: str) -> str:
    """A regular expression that names of topics are to match as a whole."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None
    return text


def merged(file: str | None, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The properties of a file, if there is one, below those that are `given`."""
    return {**(read_properties(file) if file else {}), **dict(given)}


def client_config(
    arguments: argparse.Namespace,
    flags: Mapping[str, object] = {},
    *,
    defaults: Mapping[str, object] = {},
) -> dict[str, object]:
    """The settings of a client: `flags` that are not None win, `defaults` lose against all."""
    config: dict[str, object] = dict(defaults)
    config |= merged(arguments.command_config, getattr(arguments, "command_properties", ()))
    config |= {name: value for name, value in flags.items() if value is not None}
    if arguments.bootstrap_servers is not None:
        config[SERVERS] = arguments.bootstrap_servers
    if not config.get(SERVERS):
        raise UsageError("say --bootstrap-server HOST:PORT")
    return config


def known_to(table: type[ClientSettings], config: Mapping[str, object]) -> dict[str, object]:
    """What of some settings this kind of client has, too: for tools with several of them."""
    from plog.settings import settings_of

    names = {x for row in settings_of(table).values() for x in (row.name, *row.aliases)}
    return {name: value for name, value in config.items() if name in names}
