"""``plog configs``: tell and change settings of topics, brokers, loggers and groups; quotas; users.

Which entity the options mean is worked out in entities.py. Settings go by resource, quotas
of users, clients and addresses by entity, and passwords of users are SCRAM credentials: three
requests, one tool. Source: Kafka 4.3 ConfigCommand.
"""

from __future__ import annotations

import argparse
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
from plog.cli.configs.values import parse_assignments
from plog.cli.options import (
    UsageError,
    add_admin_options,
    add_bootstrap_controller_option,
    comma_list,
    one_of,
    read_properties,
)
from plog.cli.output import Table, show, tell
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
_DYNAMIC_SOURCE = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Tell and change settings of topics, brokers and groups, quotas, and users' passwords."""
    add_admin_options(parser, required=False)
    add_bootstrap_controller_option(parser)
    actions = parser.add_argument_group("actions, one of which is needed")
    actions.add_argument("--describe", action="store_true", help="tell settings")
    actions.add_argument("--alter", action="store_true", help="change settings")
    add_entity_options(parser)
    changes = parser.add_argument_group("what to tell, and what to change")
    changes.add_argument(
        "--all", action="store_true", help="--describe: defaults and settings of files as well"
    )
    changes.add_argument(
        "--add-config",
        metavar="NAME=VALUE,...",
        help="settings to set; a value with commas stands in brackets: a=[b,c]",
    )
    changes.add_argument(
        "--add-config-file", metavar="FILE", help="settings to set, in a properties file"
    )
    changes.add_argument(
        "--delete-config",
        type=comma_list,
        action="extend",
        default=[],
        metavar="NAME,...",
        help="settings to take away: their defaults count again",
    )
    # Kafka 3.9 takes it, and does nothing with it either.
    changes.add_argument("--force", action="store_true", help=argparse.SUPPRESS)
    server = "plog configs --bootstrap-server localhost:9092"
    add_examples(
        parser,
        ("what a topic has of its own", f"{server} --describe --topic orders"),
        (
            "a topic keeps a day, and needs two in sync",
            f"{server} --alter --topic orders "
            "--add-config retention.ms=86400000,min.insync.replicas=2",
        ),
        ("every setting of a broker", f"{server} --describe --broker 1 --all"),
        ("a default again", f"{server} --alter --topic orders --delete-config retention.ms"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the action for the entity the options mean."""
    action = one_of(arguments, ("--describe", "--alter"))
    entities = entities_of(arguments)
    if action == "--describe":
        if arguments.add_config or arguments.add_config_file or arguments.delete_config:
            raise UsageError("--describe changes nothing: leave out --add-config, --delete-config")
        return run_admin(arguments, lambda cluster: describe(cluster, entities, arguments))
    added, deleted = changes_of(arguments)
    if any(entity.name is None for entity in entities):
        raise UsageError("--alter needs the name of what is to be changed, or its default")
    as_json = arguments.json
    return run_admin(
        arguments, lambda cluster: alter(cluster, entities, added, deleted, as_json=as_json)
    )


def changes_of(arguments: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """What to set, and what to take away. Raises UsageError."""
    if arguments.add_config is not None and arguments.add_config_file is not None:
        raise UsageError("say what to set in one way: --add-config or --add-config-file")
    added: dict[str, str] = {}
    if arguments.add_config is not None:
        added = parse_assignments(arguments.add_config)
    elif arguments.add_config_file is not None:
        added = read_properties(arguments.add_config_file)
    deleted = list(arguments.delete_config)
    if not added and not deleted:
        raise UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    both = sorted(set(added) & set(deleted))
    if both:
        raise UsageError(f"{', '.join(both)}: set it or take it away, not both")
    return added, deleted


# -- describe ----------------------------------------------------------------------------------


async def describe(
    cluster: Cluster, entities: Sequence[Entity], arguments: argparse.Namespace
) -> int:
    """Print settings, or quotas and passwords."""
    if entities[0].type in QUOTA_TYPES:
        from plog.cli.configs.quotas import describe_quotas  # Few need it.

        return await describe_quotas(cluster, entities, as_json=arguments.json)
    if not arguments.all and await _is_unknown(cluster, entities[0]):
        return _tell_unknown(entities[0], as_json=arguments.json)
    resources = await _resources(cluster, entities[0])
    described = await ConfigAdmin(cluster).describe_configs(resources, include_synonyms=True)
    named_one = entities[0].name is not None and not arguments.all
    if named_one and isinstance(described[resources[0]], _UNKNOWN):
        return _tell_unknown(entities[0], as_json=arguments.json)
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


def _tell_unknown(entity: Entity, *, as_json: bool) -> int:
    """Print Kafka's sentence; the exit code is 1, for scripts, where Kafka's tool ends with 0."""
    text = f"The {entity.type[:-1]} '{entity.name}' doesn't exist and doesn't have dynamic config."
    tell(text, [], as_json=as_json)
    return 1


async def _is_unknown(cluster: Cluster, entity: Entity) -> bool:
    """Whether nobody has heard of a group or a metrics subscription, which have no settings then.

    Of other entities there are not, who is asked about them says so.
    """
    if entity.name is None or entity.type not in ("groups", "client-metrics"):
        return False
    if entity.type == "client-metrics":
        named = await ConfigAdmin(cluster).list_config_resources(
            [ConfigResourceType.CLIENT_METRICS]
        )
        return entity.name not in (resource.name for resource in named)
    if entity.name in await GroupAdmin(cluster).list_groups():
        return False
    with_settings = await _groups_with_settings(cluster)
    return with_settings is not None and entity.name not in with_settings


async def _groups_with_settings(cluster: Cluster) -> set[str] | None:
    """Groups that have some, even if nobody is in them; None before Kafka 4.1, as nobody knows."""
    try:
        named = await ConfigAdmin(cluster).list_config_resources([ConfigResourceType.GROUP])
    except (UnsupportedVersion, ClusterAuthorizationFailed):
        return None
    return {resource.name for resource in named}


async def _resources(cluster: Cluster, entity: Entity) -> list[ConfigResource]:
    """The resources an entity stands for: all of its type if it has no name."""
    kind = RESOURCE_TYPES[entity.type]
    if entity.name is not None:
        return [ConfigResource(kind, entity.name)]
    if kind is ConfigResourceType.TOPIC:
        names = sorted(await TopicDescriptionAdmin(cluster).list_topics(include_internal=True))
    elif kind is ConfigResourceType.GROUP:
        with_settings = await _groups_with_settings(cluster) or set()
        names = sorted(with_settings.union(await GroupAdmin(cluster).list_groups()))
    elif kind is ConfigResourceType.CLIENT_METRICS:
        listed = await ConfigAdmin(cluster).list_config_resources([kind])
        names = sorted(resource.name for resource in listed)
    else:
        brokers = (await BrokerAdmin(cluster).describe_cluster()).brokers
        names = [str(number) for number in sorted(brokers)]
        if kind is ConfigResourceType.BROKER:
            names.append(DEFAULT)
    return [ConfigResource(kind, name) for name in names]


def _is_dynamic(resource: ConfigResource, entry: ConfigEntry) -> bool:
    if resource.type is ConfigResourceType.BROKER and not resource.name:
        return entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entry.source is _DYNAMIC_SOURCE[resource.type]


def _lines(
    kind: str, resource: ConfigResource, entries: Sequence[ConfigEntry], *, everything: bool
) -> list[str]:
    """Kafka's lines about one resource."""
    if resource.name:
        head = f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {resource.name} are:"
    else:
        head = f"Default configs for {kind} in the cluster are:"
    return [
        head,
        *(
            f"  {entry.name}={_shown(entry.value)} sensitive={str(entry.is_sensitive).lower()}"
            f" synonyms={{{_synonyms(entry)}}}"
            for entry in entries
        ),
    ]


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _synonyms(entry: ConfigEntry) -> str:
    return ", ".join(
        f"{each.source.name}:{each.name}={_shown(each.value)}" for each in entry.synonyms
    )


def _table(kind: str, resource: ConfigResource, entries: Sequence[ConfigEntry]) -> Table:
    return Table(
        (f"{kind[:-1].upper()} {resource.name}".rstrip(), "VALUE", "FROM"),
        [
            (
                entry.name,
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
    """Set and take away, and tell that it is done."""
    first = entities[0]
    if first.type in QUOTA_TYPES:
        from plog.cli.configs.quotas import alter_quotas  # Few need it.

        await alter_quotas(cluster, entities, added, deleted)
    else:
        assert first.name is not None
        await _alter_resource(
            cluster, ConfigResource(RESOURCE_TYPES[first.type], first.name), added, deleted
        )
    text = f"Completed updating default config for {first.type} in the cluster."
    if first.name:
        text = f"Completed updating config for {first.type[:-1]} {first.name}."
    altered = [{"entity_type": each.type, "entity_name": each.name or None} for each in entities]
    done = {"altered": altered, "set": sorted(added), "deleted": sorted(deleted)}
    tell(text, done, as_json=as_json)
    return 0


async def _alter_resource(
    cluster: Cluster,
    resource: ConfigResource,
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    """To take away what was never set is no error. Raises UsageError for a logger there is not."""
    admin = ConfigAdmin(cluster)
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        known = await admin.describe_config(resource)
        unknown = [name for name in (*added, *deleted) if name not in known]
        if unknown:
            raise UsageError(f"Invalid broker logger(s): {','.join(unknown)}")
    changes = [AlterConfig(name, value) for name, value in added.items()]
    changes += [AlterConfig(name, operation=AlterOperation.DELETE) for name in deleted]
    (await admin.incremental_alter_configs({resource: changes})).raise_first()
