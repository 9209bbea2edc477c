"""Select entities by the options of ``plog configs``, in Kafka's old and new syntax.

``--topic orders`` and ``--entity-type topics --entity-name orders`` are equivalent, and so are
``--client-defaults`` and ``--entity-type clients --entity-default``. A user combined with a client
selects the quotas for that user's connections with that client id.
"""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from plog.cli.options import UsageError
from plog.enums import ConfigResourceType

DEFAULT: Final = ""
"""The name that stands for a type's default entity."""

RESOURCE_TYPES: Final = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "broker-loggers": ConfigResourceType.BROKER_LOGGER,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
    "groups": ConfigResourceType.GROUP,
}
QUOTA_TYPES: Final = ("users", "clients", "ips")
_TYPES: Final = (*RESOURCE_TYPES, *QUOTA_TYPES)
_NUMBERED: Final = ("brokers", "broker-loggers")

# Option, entity type and help text.
_SHORT: Final = (
    ("--topic", "topics", "topic name"),
    ("--broker", "brokers", "broker id"),
    (
        "--broker-logger",
        "broker-loggers",
        "broker id; selects the broker's loggers and their levels",
    ),
    ("--client-metrics", "client-metrics", "name of a client metrics subscription"),
    ("--group", "groups", "group id"),
    ("--user", "users", "user principal, without its type"),
    ("--client", "clients", "client id"),
    ("--ip", "ips", "IP address"),
)
_DEFAULTS: Final = (
    ("--broker-defaults", "brokers"),
    ("--user-defaults", "users"),
    ("--client-defaults", "clients"),
    ("--ip-defaults", "ips"),
)
_WITH_DEFAULT: Final = tuple(kind for _, kind in _DEFAULTS)


class Entity(NamedTuple):
    """An entity that has settings.

    A name of None means all entities of the type, an empty name the type's default entity.
    """

    type: str
    name: str | None


class _AppendEntity(argparse.Action):
    """Collects types and names in command-line order, which determines how they are paired."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        # This list is new, because all command lines share the default list.
        given = [*getattr(namespace, "entities"), (option_string, values)]  # noqa: B009 - set here
        namespace.entities = given


def add_entity_options(parser: argparse.ArgumentParser) -> None:
    """Add all options that select an entity."""
    parser.set_defaults(entities=[])
    group = parser.add_argument_group("entities")
    # The options have no destination of their own (`_`): all of them append to `entities`.
    for option, _, text in _SHORT:
        group.add_argument(option, action=_AppendEntity, dest="_", metavar="NAME", help=text)
    for option, kind in _DEFAULTS:
        group.add_argument(
            option, action=_AppendEntity, dest="_", nargs=0, help=f"the default for all {kind}"
        )
    group.add_argument(
        "--entity-type",
        action=_AppendEntity,
        dest="_",
        choices=_TYPES,
        metavar="TYPE",
        help=f"entity type, in the older syntax: {', '.join(_TYPES)}",
    )
    group.add_argument(
        "--entity-name",
        action=_AppendEntity,
        dest="_",
        metavar="NAME",
        help="name of an entity of this type",
    )
    group.add_argument(
        "--entity-default",
        action=_AppendEntity,
        dest="_",
        nargs=0,
        help="the default entity of this type",
    )


def entities_of(arguments: argparse.Namespace) -> list[Entity]:
    """Return the selected entity, or a user and a client. Raises UsageError."""
    short_types = {option: kind for option, kind, _ in _SHORT}
    default_types = dict(_DEFAULTS)
    types = [str(value) for option, value in arguments.entities if option == "--entity-type"]
    names = [
        DEFAULT if option == "--entity-default" else str(value)
        for option, value in arguments.entities
        if option in ("--entity-name", "--entity-default")
    ]
    if len(names) > len(types):
        raise UsageError("--entity-name and --entity-default require --entity-type")
    # As in Kafka's tool, the nth name belongs to the nth type. A type without a name selects all
    # entities of the type.
    entities = [
        Entity(kind, names[number] if number < len(names) else None)
        for number, kind in enumerate(types)
    ]
    for option, value in arguments.entities:
        if option in short_types:
            entities.append(Entity(short_types[option], str(value)))
        elif option in default_types:
            entities.append(Entity(default_types[option], DEFAULT))
    _check(entities)
    # In reverse alphabetical order, users precede clients, as in Kafka's output.
    return sorted(entities, key=lambda entity: entity.type, reverse=True)


def _check(entities: list[Entity]) -> None:
    types = [entity.type for entity in entities]
    if not types:
        raise UsageError(
            "no entity specified; use --topic, --broker, --group, --user, --client or --ip"
        )
    # Only quotas have entities with two parts, a user and a client id (KIP-55).
    if len(types) > 1 and sorted(types) != ["clients", "users"]:
        raise UsageError(
            f"cannot combine {' and '.join(types)}: only a user and a client can be combined"
        )
    for kind, name in entities:
        if name == DEFAULT and kind not in _WITH_DEFAULT:
            raise UsageError(f"{kind} do not have a default: specify a name")
        if kind in _NUMBERED and name and not name.isdecimal():
            raise UsageError(f"'{name}' is not a broker id: it must be a number")
    # Loggers belong to the process of a broker, which the request must name.
    if types == ["broker-loggers"] and entities[0].name is None:
        raise UsageError("broker-loggers require a broker id: --broker-logger ID")
