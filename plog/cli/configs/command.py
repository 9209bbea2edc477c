"""Entry point of ``plog configs``: describe and alter settings, quotas and SCRAM credentials.

entities.py resolves the entity that the options select. The tool combines three APIs: settings
belong to a resource such as a topic, quotas to a user, client or IP address, and SCRAM credentials
to a user. Source: Kafka 4.3 ConfigCommand.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

from plog.cli.admin_client import run_admin
from plog.cli.configs.entities import (
    DEFAULT,
    QUOTA_TYPES,
    RESOURCE_TYPES,
    Entity,
    add_entity_options,
    entities_of,
)
from plog.cli.options import (
    UsageError,
    add_admin_options,
    add_bootstrap_controller_option,
    comma_list,
    one_of,
    read_properties,
)
from plog.cli.output import Table, print_outcome, show
from plog.cli.parser import add_examples
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.configs import ConfigAdmin
from plog.client.admin.groups import GroupAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import AlterConfig, ConfigEntry, ConfigResource
from plog.client.errors import BrokerNotAvailable
from plog.client.network.cluster import Cluster
from plog.enums import AlterOperation, ConfigResourceType, ConfigSource
from plog.errors import (
    ClusterAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)

_UNKNOWN = (UnknownTopicOrPartition, BrokerNotAvailable)
# A comma outside brackets, as in Kafka's tool: the next bracket, if any, is an opening bracket.
_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")
_DYNAMIC_SOURCE = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe and change topic, broker and group settings, quotas, and SCRAM users."""
    add_admin_options(parser, required=False)
    add_bootstrap_controller_option(parser)
    actions = parser.add_argument_group("actions (specify exactly one)")
    actions.add_argument("--describe", action="store_true", help="describe settings")
    actions.add_argument("--alter", action="store_true", help="change settings")
    add_entity_options(parser)
    changes = parser.add_argument_group("settings to describe or change")
    changes.add_argument(
        "--all", action="store_true", help="--describe: include defaults and settings from files"
    )
    changes.add_argument(
        "--add-config",
        metavar="NAME=VALUE,...",
        help="settings to change; if a value contains commas, enclose it in brackets: a=[b,c]",
    )
    changes.add_argument(
        "--add-config-file", metavar="FILE", help="properties file with settings to change"
    )
    changes.add_argument(
        "--delete-config",
        type=comma_list,
        action="extend",
        default=[],
        metavar="NAME,...",
        help="settings to delete; this restores their defaults",
    )
    # Kafka 3.9 also accepts this option and ignores it.
    changes.add_argument("--force", action="store_true", help=argparse.SUPPRESS)
    server = "plog configs --bootstrap-server localhost:9092"
    add_examples(
        parser,
        ("show the settings that a topic overrides", f"{server} --describe --topic orders"),
        (
            "keep records for a day, and require two in-sync replicas",
            f"{server} --alter --topic orders "
            "--add-config retention.ms=86400000,min.insync.replicas=2",
        ),
        ("show all settings of a broker", f"{server} --describe --broker 1 --all"),
        ("restore a default", f"{server} --alter --topic orders --delete-config retention.ms"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the action on the entity that the options select."""
    action = one_of(arguments, ("--describe", "--alter"))
    entities = entities_of(arguments)
    if action == "--describe":
        if arguments.add_config or arguments.add_config_file or arguments.delete_config:
            raise UsageError("--describe does not accept --add-config or --delete-config")
        return run_admin(arguments, lambda cluster: describe(cluster, entities, arguments))
    added, deleted = changes_of(arguments)
    if any(entity.name is None for entity in entities):
        raise UsageError(
            "--alter requires the name of an entity, or a default option such as --client-defaults"
        )
    as_json = arguments.json
    return run_admin(
        arguments, lambda cluster: alter(cluster, entities, added, deleted, as_json=as_json)
    )


def changes_of(arguments: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the settings to set, and the names of settings to delete. Raises UsageError."""
    if arguments.add_config is not None and arguments.add_config_file is not None:
        raise UsageError("--add-config and --add-config-file cannot be combined")
    added: dict[str, str] = {}
    if arguments.add_config is not None:
        added = parse_assignments(arguments.add_config)
    elif arguments.add_config_file is not None:
        added = read_properties(arguments.add_config_file)
    deleted = list(arguments.delete_config)
    if not added and not deleted:
        raise UsageError("--alter requires --add-config, --add-config-file or --delete-config")
    # IncrementalAlterConfigs requests must not contain a setting twice.
    both = sorted(set(added) & set(deleted))
    if both:
        raise UsageError(f"cannot both set and delete {', '.join(both)}")
    return added, deleted


# -- describe ----------------------------------------------------------------------------------


async def describe(
    cluster: Cluster, entities: Sequence[Entity], arguments: argparse.Namespace
) -> int:
    """Print settings, or quotas and credentials."""
    # Only quotas can apply to two entities, a user and a client.
    if entities[0].type in QUOTA_TYPES:
        from plog.cli.configs.quotas import describe_quotas  # Few commands need it.

        return await describe_quotas(cluster, entities, as_json=arguments.json)
    # As in Kafka's tool, a missing entity has a message of its own only without --all. With --all,
    # the error of the broker is printed.
    if not arguments.all and await _is_unknown(cluster, entities[0]):
        return _print_unknown(entities[0], as_json=arguments.json)
    resources = await _resources(cluster, entities[0])
    described = await ConfigAdmin(cluster).describe_configs(resources, include_synonyms=True)
    has_one_name = entities[0].name is not None and not arguments.all
    if has_one_name and isinstance(described[resources[0]], _UNKNOWN):
        return _print_unknown(entities[0], as_json=arguments.json)
    configs = {
        resource: [
            entries[name]
            for name in sorted(entries)
            if arguments.all or _is_dynamic(resource, entries[name])
        ]
        for resource, entries in described.raise_first().items()
    }
    kind = entities[0].type
    show(
        lambda: (
            line
            for resource, entries in configs.items()
            for line in _lines(kind, resource, entries, everything=arguments.all)
        ),
        lambda: (_table(kind, resource, entries) for resource, entries in configs.items()),
        lambda: [_as_data(kind, resource, entries) for resource, entries in configs.items()],
        as_json=arguments.json,
    )
    return 0


def _print_unknown(entity: Entity, *, as_json: bool) -> int:
    """Print the same message as Kafka's tool and return 1."""
    # Kafka's tool exits with 0, so a script cannot detect a misspelled name.
    # Kafka's tool also drops the last letter of the type, so the message says `client-metric`.
    text = f"The {entity.type[:-1]} '{entity.name}' doesn't exist and doesn't have dynamic config."
    print_outcome(text, [], as_json=as_json)
    return 1


async def _is_unknown(cluster: Cluster, entity: Entity) -> bool:
    """Return whether `entity` names a group or a metrics subscription that does not exist.

    A group exists if the cluster lists the group or if the group has settings. Return False if the
    cluster cannot list groups with settings.
    """
    # For other types, DescribeConfigs returns an error if the resource does not exist.
    if entity.name is None or entity.type not in ("groups", "client-metrics"):
        return False
    if entity.type == "client-metrics":
        listed = await ConfigAdmin(cluster).list_config_resources(
            [ConfigResourceType.CLIENT_METRICS]
        )
        return entity.name not in (resource.name for resource in listed)
    if entity.name in await GroupAdmin(cluster).list_groups():
        return False
    with_settings = await _groups_with_settings(cluster)
    return with_settings is not None and entity.name not in with_settings


async def _groups_with_settings(cluster: Cluster) -> set[str] | None:
    """Return the groups that have settings; None before Kafka 4.1 or without authorization."""
    try:
        # Before KIP-1142, this request lists only client metrics.
        listed = await ConfigAdmin(cluster).list_config_resources([ConfigResourceType.GROUP])
    except (UnsupportedVersion, ClusterAuthorizationFailed):
        return None
    return {resource.name for resource in listed}


async def _resources(cluster: Cluster, entity: Entity) -> list[ConfigResource]:
    """Return the resource of an entity, or all resources of the type if the entity has no name."""
    kind = RESOURCE_TYPES[entity.type]
    if entity.name is not None:
        return [ConfigResource(kind, entity.name)]
    if kind is ConfigResourceType.TOPIC:
        names = sorted(await TopicDescriptionAdmin(cluster).list_topics(include_internal=True))
    elif kind is ConfigResourceType.GROUP:
        # Neither list is complete: a group can have settings before its first member joins.
        with_settings = await _groups_with_settings(cluster) or set()
        names = sorted(with_settings.union(await GroupAdmin(cluster).list_groups()))
    elif kind is ConfigResourceType.CLIENT_METRICS:
        listed = await ConfigAdmin(cluster).list_config_resources([kind])
        names = sorted(resource.name for resource in listed)
    else:
        brokers = (await BrokerAdmin(cluster).describe_cluster()).brokers
        names = [str(number) for number in sorted(brokers)]
        if kind is ConfigResourceType.BROKER:
            names.append(DEFAULT)  # Cluster-wide defaults, as in Kafka's tool.
    return [ConfigResource(kind, name) for name in names]


def _is_dynamic(resource: ConfigResource, entry: ConfigEntry) -> bool:
    if resource.type is ConfigResourceType.BROKER and not resource.name:  # Cluster-wide defaults.
        return entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entry.source is _DYNAMIC_SOURCE[resource.type]


def _lines(
    kind: str, resource: ConfigResource, entries: Sequence[ConfigEntry], *, everything: bool
) -> list[str]:
    """Return the lines that Kafka's tool prints for a resource."""
    if resource.name:
        head = f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {resource.name} are:"
    else:
        head = f"Default configs for {kind} in the cluster are:"
    return [
        head,
        *(
            f"  {entry.name}={_value_text(entry.value)} sensitive={str(entry.is_sensitive).lower()}"
            f" synonyms={{{_synonyms(entry)}}}"
            for entry in entries
        ),
    ]


def _value_text(value: str | None) -> str:
    return "null" if value is None else value


def _synonyms(entry: ConfigEntry) -> str:
    return ", ".join(
        f"{each.source.name}:{each.name}={_value_text(each.value)}" for each in entry.synonyms
    )


def _table(kind: str, resource: ConfigResource, entries: Sequence[ConfigEntry]) -> Table:
    return Table(
        (f"{kind[:-1].upper()} {resource.name}".rstrip(), "VALUE", "FROM"),
        [
            (
                entry.name,
                # Brokers return no value for a secret, which the table would otherwise show as not
                # set.
                "(secret)" if entry.is_sensitive else entry.value,
                entry.source.name.lower().replace("_", " ").removesuffix(" config"),
            )
            for entry in entries
        ],
    )


def _as_data(
    kind: str, resource: ConfigResource, entries: Sequence[ConfigEntry]
) -> dict[str, object]:
    return {
        "entity_type": kind,
        "entity_name": resource.name or None,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "sensitive": entry.is_sensitive,
                "read_only": entry.is_read_only,
                "source": entry.source.name,
            }
            for entry in entries
        ],
    }


# -- alter -------------------------------------------------------------------------------------


async def alter(
    cluster: Cluster,
    entities: Sequence[Entity],
    added: Mapping[str, str],
    deleted: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Set and delete settings, and print a confirmation."""
    first = entities[0]
    if first.type in QUOTA_TYPES:
        from plog.cli.configs.quotas import alter_quotas  # Few commands need it.

        await alter_quotas(cluster, entities, added, deleted)
    else:
        # `run` rejects --alter without a name.
        assert first.name is not None
        await _alter_resource(
            cluster, ConfigResource(RESOURCE_TYPES[first.type], first.name), added, deleted
        )
    text = f"Completed updating default config for {first.type} in the cluster."
    if first.name:
        text = f"Completed updating config for {first.type[:-1]} {first.name}."
    altered = [{"entity_type": each.type, "entity_name": each.name or None} for each in entities]
    done = {"altered": altered, "set": sorted(added), "deleted": sorted(deleted)}
    print_outcome(text, done, as_json=as_json)
    return 0


async def _alter_resource(
    cluster: Cluster,
    resource: ConfigResource,
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    """Alter one resource; deleting a setting that is not set succeeds.

    Raises UsageError for an unknown logger.
    """
    admin = ConfigAdmin(cluster)
    # Kafka 4.3's tool also rejects unknown loggers, but accepts settings that are not set.
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        known = await admin.describe_config(resource)
        unknown = [name for name in (*added, *deleted) if name not in known]
        if unknown:
            raise UsageError(f"Invalid broker logger(s): {','.join(unknown)}")
    # The older request AlterConfigs would reset all settings that it does not contain (KIP-339).
    changes = [AlterConfig(name, value) for name, value in added.items()]
    changes += [AlterConfig(name, operation=AlterOperation.DELETE) for name in deleted]
    (await admin.incremental_alter_configs({resource: changes})).raise_first()


def parse_assignments(text: str) -> dict[str, str]:
    """Return the settings in ``--add-config a=1,b=[2,3]``. Raises UsageError.

    >>> parse_assignments("a=1, b=[2,3],c=")
    {'a': '1', 'b': '2,3', 'c': ''}
    """
    values: dict[str, str] = {}
    for part in _COMMA.split(text):
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--add-config: '{part.strip()}' is not name=value")
        # As in Kafka's tool, brackets anywhere in the value are removed.
        values[name.strip()] = value.replace("[", "").replace("]", "").strip()
    return values
