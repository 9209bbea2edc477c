"""plog/cli/configs/entities.py: entities named in the old and the new syntax."""

from __future__ import annotations

import pytest

from plog.cli.configs.entities import add_entity_options, entities_of
from plog.cli.options import UsageError
from plog.cli.parser import Parser


def _entities(line: str) -> list[tuple[str, str | None]]:
    parser = Parser(prog="plog configs")
    add_entity_options(parser)
    return [tuple(entity) for entity in entities_of(parser.parse_args(line.split()))]


@pytest.mark.parametrize(
    ("line", "entities"),
    [
        ("--topic t", [("topics", "t")]),
        ("--entity-type topics --entity-name t", [("topics", "t")]),
        ("--entity-type topics", [("topics", None)]),
        ("--broker 1", [("brokers", "1")]),
        ("--broker-defaults", [("brokers", "")]),
        ("--entity-type brokers --entity-default", [("brokers", "")]),
        ("--broker-logger 1", [("broker-loggers", "1")]),
        ("--group g", [("groups", "g")]),
        ("--client-metrics m", [("client-metrics", "m")]),
        ("--ip ::1", [("ips", "::1")]),
        ("--ip-defaults", [("ips", "")]),
        ("--client c --user u", [("users", "u"), ("clients", "c")]),
        ("--user-defaults --client c", [("users", ""), ("clients", "c")]),
        (
            "--entity-type clients --entity-default --entity-type users --entity-name u",
            [("users", "u"), ("clients", "")],
        ),
        ("--entity-type users --entity-type clients --entity-name u", [("users", "u"),
                                                                       ("clients", None)]),
    ],
)  # fmt: skip
def test_options_name_entities(line: str, entities: list[tuple[str, str | None]]) -> None:
    assert _entities(line) == entities


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no entity specified"),
        ("--entity-name t", "require --entity-type"),
        ("--topic t --broker 1", "only a user and a client can be combined"),
        ("--topic t --topic u", "only a user and a client can be combined"),
        ("--entity-type topics --entity-default", "do not have a default"),
        ("--broker one", "not a broker id"),
        ("--entity-type broker-loggers", "require a broker id"),
    ],
)
def test_invalid_combination_is_an_error(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _entities(line)
