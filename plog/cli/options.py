"""Options that several tools share, with the current and older spellings from Kafka's tools.

An older spelling is an alias of the current spelling: ``--property`` and ``--formatter-property``
append to the same list. The parser rejects invalid values, so that the error identifies the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypeVar

from plog.error_base import PlogError
from plog.properties import PropertiesError, decode_properties, parse_properties

T = TypeVar("T")


class UsageError(PlogError):
    """Options are missing or cannot be combined; the message contains a remedy."""


def raw_key_value(text: str) -> tuple[str, str]:
    """Parse ``name=value``; the value can be empty, be white space, or contain ``=`` itself.

    >>> raw_key_value("key.separator= "), raw_key_value("a.b=c=d")
    (('key.separator', ' '), ('a.b', 'c=d'))
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        # argparse shows the text of this exception, but replaces the text of a ValueError.
        raise argparse.ArgumentTypeError(f"'{text}' is not name=value")
    return name.strip(), value


def key_value(text: str) -> tuple[str, str]:
    """Parse ``name=value`` and strip white space around the value.

    >>> key_value("a.b = c=d "), key_value("a=")
    (('a.b', 'c=d'), ('a', ''))
    """
    name, value = raw_key_value(text)
    # As in Kafka's ConfigDef, white space around a value is not part of it.
    return name, value.strip()


def add_bootstrap_option(
    parser: argparse._ActionsContainer, *older: str, required: bool = True
) -> None:
    """Add ``--bootstrap-server``; `older` are the option's older names in the tool."""
    parser.add_argument(
        "--bootstrap-server",
        "--bootstrap-servers",
        *older,
        dest="bootstrap_servers",
        required=required,
        metavar="HOST:PORT[,HOST:PORT]",
        help="brokers for the initial connection; the client discovers the others",
    )
    # Hidden options, for an error message that helps users who follow old documentation.
    parser.add_argument(
        "--zookeeper",
        "--zk-tls-config-file",
        action=_RemovedOption,
        dest="_",
        help=argparse.SUPPRESS,
    )


class _RemovedOption(argparse.Action):
    """Rejects an option that used to identify the cluster and that Kafka has removed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: object,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        parser.error(
            f"{option_string} was removed because the tools connect to brokers; use"
            " --bootstrap-server HOST:PORT"
        )


def add_bootstrap_controller_option(parser: argparse._ActionsContainer, *short: str) -> None:
    """Add ``--bootstrap-controller``, for tools that can connect to Kafka's controllers."""
    parser.add_argument(
        "--bootstrap-controller",
        *short,
        dest="bootstrap_controllers",
        metavar="HOST:PORT[,HOST:PORT]",
        help="controllers of an Apache Kafka cluster to connect to, instead of brokers; not"
        " available with plog",
    )


def add_command_config_option(
    parser: argparse._ActionsContainer, *older: str, role: str = "client"
) -> None:
    """Add ``--command-config``; `older` are the option's older names in the tool."""
    parser.add_argument(
        "--command-config",
        *older,
        dest="command_config",
        metavar="FILE",
        help=f"properties file with {role} settings, such as those for TLS and SASL",
    )


def add_property_option(
    parser: argparse._ActionsContainer,
    name: str,
    *older: str,
    dest: str,
    description: str,
    read: Callable[[str], tuple[str, str]] = key_value,
) -> None:
    """Add an option that accepts one ``name=value`` and can be repeated.

    For values in which white space matters, `read` is `raw_key_value`.
    """
    parser.add_argument(
        name,
        *older,
        dest=dest,
        action="append",
        # argparse copies the list before it appends, so command lines do not share it.
        default=[],
        type=read,
        metavar="NAME=VALUE",
        help=f"{description}; may be repeated",
    )


def add_json_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--json``, which selects output for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_admin_options(parser: argparse.ArgumentParser, *older: str, required: bool = True) -> None:
    """Add the options for all admin tools; `older` are older names of ``--bootstrap-server``."""
    add_bootstrap_option(parser, *older, required=required)
    add_command_config_option(parser)
    add_json_option(parser)


def positive(text: str) -> int:
    """Parse a whole number greater than 0."""
    return _number(text, 1)


def not_negative(text: str) -> int:
    """Parse a whole number of 0 or more."""
    return _number(text, 0)


def _number(text: str, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
    if value < at_least:
        raise argparse.ArgumentTypeError(f"{value} is less than {at_least}")
    return value


def comma_list(text: str) -> list[str]:
    """Return the non-empty parts of a comma-separated list, without white space around them.

    >>> comma_list("a, b,,c")
    ['a', 'b', 'c']
    """
    # Scripts that assemble a list often leave a comma at its end.
    return [part.strip() for part in text.split(",") if part.strip()]


def number_list(text: str) -> list[int]:
    """Parse a comma-separated list of whole numbers, such as broker ids."""
    return [_number(part, 0) for part in comma_list(text)]


def read_properties(path: str) -> dict[str, str]:
    """Return the settings in a properties file. Raises OSError, or UsageError for invalid lines."""
    # Read as bytes, because the encoding can be UTF-8 or Latin-1.
    with open(path, "rb") as file:
        text = decode_properties(file.read())
    try:
        # As in Java's Properties, the last assignment of a key counts.
        return {each.key: each.value for each in parse_properties(text)}
    except PropertiesError as error:
        raise UsageError(f"{path}, {error}") from None


def one_of(arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the option that is given, such as ``--list``.

    Raises UsageError unless exactly one of the options `names` is given.
    """
    given = [name for name in names if is_given(arguments, name)]
    if len(given) != 1:
        choice = f"{', '.join(names[:-1])} and {names[-1]}"
        raise UsageError(f"specify exactly one of {choice}")
    return given[0]


def only_with(arguments: argparse.Namespace, actions: Iterable[str], *names: str) -> None:
    """Reject the options `names` unless one of `actions` is given. Raises UsageError."""
    # An iterator could be read only once, but the error needs the names again.
    actions = list(actions)
    if any(is_given(arguments, action) for action in actions):
        return
    for name in names:
        if is_given(arguments, name):
            raise UsageError(f"{name} requires {' or '.join(actions)}")


def is_given(arguments: argparse.Namespace, name: str) -> bool:
    """Return whether an option, such as ``--list``, is given."""
    value = getattr(arguments, name.lstrip("-").replace("-", "_"))
    # A truth test would be wrong, because 0 is a valid value, for example for --to-offset.
    return value is not None and value is not False and value != []
