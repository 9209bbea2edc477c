"""Describe, alter and list configs for topics, brokers, loggers, groups and client metrics.

Requests about a broker's own configs and logger levels are sent to that broker. All other requests
are sent to any broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from plog.client.admin.argument_checks import ConfigValue, config_text
from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.client.admin.routing import Answers, ask_nodes, settle
from plog.client.admin.values import (
    AlterConfig,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    ConfigType,
)
from plog.enums import AlterOperation, ConfigResourceType, ConfigSource
from plog.errors import KafkaError, UnsupportedVersion
from plog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from plog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from plog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from plog.wire.schema import ApiMessage

# Broker ids are never negative.
_ANY_NODE = -1

_Response = TypeVar("_Response", bound=ApiMessage)


class ConfigAdmin(AdminBase):
    """The operations on configs."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return each resource's configs by name, optionally only the configs in `names`."""

        async def ask(
            node_id: int, resources: Sequence[ConfigResource]
        ) -> Answers[ConfigResource, dict[str, ConfigEntry]]:
            request = describe_configs_request(
                resources,
                names=names,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            return described_configs(await self._ask(node_id, request, DescribeConfigsResponse))

        return await settle(
            self._cluster,
            resources,
            # Configs of a broker and its loggers must be requested from that broker.
            lambda waiting: ask_nodes(self._cluster, _by_node(waiting), ask),
        )

    async def describe_config(self, resource: ConfigResource) -> dict[str, ConfigEntry]:
        """Return one resource's configs by name. Raises the error from `describe_configs`."""
        return (await self.describe_configs([resource])).get(resource)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfig]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Change individual configs and keep all others.

        For each resource, either all changes apply or none. Errors, per resource: InvalidConfig,
        UnknownTopicOrPartition, InvalidRequest, ...
        """
        # An iterator of changes can be read only once, but a retry sends them again.
        listed = {resource: list(some) for resource, some in changes.items()}

        async def ask(
            node_id: int, resources: Sequence[ConfigResource]
        ) -> Answers[ConfigResource, None]:
            request = incremental_alter_configs_request(
                {resource: listed[resource] for resource in resources}, validate_only=validate_only
            )
            answer = await self._ask(node_id, request, IncrementalAlterConfigsResponse)
            return altered_configs(answer.responses)

        return await settle(
            self._cluster, listed, lambda waiting: ask_nodes(self._cluster, _by_node(waiting), ask)
        )

    async def alter_config(
        self,
        resource: ConfigResource,
        configs: Mapping[str, ConfigValue | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set individual configs for one resource; a value of None restores the default.

        Values are strings, numbers or bools: ``{"retention.ms": 5}``. Raises the error that
        `incremental_alter_configs` returns for the resource.
        """
        # Restore a default with DELETE: an empty string can be a valid value.
        changes = [
            AlterConfig(name, value)
            if value is not None
            else AlterConfig(name, operation=AlterOperation.DELETE)
            for name, value in configs.items()
        ]
        altered = await self.incremental_alter_configs(
            {resource: changes}, validate_only=validate_only
        )
        altered.get(resource)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Replace all configs for each resource; configs that are not listed return to the default.

        Use this operation only with brokers before Kafka 2.3. It overwrites concurrent changes,
        which `incremental_alter_configs` keeps.
        """

        async def ask(
            node_id: int, resources: Sequence[ConfigResource]
        ) -> Answers[ConfigResource, None]:
            request = alter_configs_request(
                {resource: configs[resource] for resource in resources}, validate_only=validate_only
            )
            return altered_configs(
                (await self._ask(node_id, request, AlterConfigsResponse)).responses
            )

        return await settle(
            self._cluster, configs, lambda waiting: ask_nodes(self._cluster, _by_node(waiting), ask)
        )

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = ()
    ) -> list[ConfigResource]:
        """Return the resources that can have configs, by default resources of all types.

        Brokers before Kafka 4.1 list only client metrics; for other types, the operation raises
        UnsupportedVersion.
        """
        wanted = list(types)
        request = ListConfigResourcesRequest(resource_types=[int(kind) for kind in wanted])
        try:
            response = await self._cluster.ask_any(request, ListConfigResourcesResponse)
        except UnsupportedVersion:
            if wanted != [ConfigResourceType.CLIENT_METRICS]:
                raise
            # Version 0, which has no resource types, lists only client metrics.
            anything = ListConfigResourcesRequest()
            response = await self._cluster.ask_any(anything, ListConfigResourcesResponse)
        raise_if_error(response.error_code, None, "the config resources")
        return [
            ConfigResource(ConfigResourceType(found.resource_type), found.resource_name)
            for found in response.config_resources
        ]

    async def _ask(self, node_id: int, request: ApiMessage, response: type[_Response]) -> _Response:
        if node_id == _ANY_NODE:
            return await self._cluster.ask_any(request, response)
        return await self._cluster.ask_node(node_id, request, response)


def _by_node(resources: Iterable[ConfigResource]) -> dict[int, list[ConfigResource]]:
    """Group the resources by the broker that serves them; the key _ANY_NODE means any broker."""
    grouped: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        node_id = resource.node_id
        # Any broker also serves the cluster-wide defaults of broker configs (KIP-226).
        grouped.setdefault(_ANY_NODE if node_id is None else node_id, []).append(resource)
    return grouped


# -- requests ---------------------------------------------------------------------------------


def describe_configs_request(
    resources: Iterable[ConfigResource],
    *,
    names: Sequence[str] | None,
    include_synonyms: bool,
    include_documentation: bool,
) -> DescribeConfigsRequest:
    """Return the request to describe configs."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                # None requests all configs; an empty list would request none.
                configuration_keys=None if names is None else list(names),
            )
            for resource in resources
        ],
        include_synonyms=include_synonyms,
        include_documentation=include_documentation,
    )


def incremental_alter_configs_request(
    changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool
) -> IncrementalAlterConfigsRequest:
    """Return the request to change individual configs."""
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    IncrementalAlterableConfig(
                        name=change.name,
                        config_operation=change.operation,
                        # DELETE has no value: it restores the default.
                        value=None if change.value is None else config_text(change.value),
                    )
                    for change in some
                ],
            )
            for resource, some in changes.items()
        ],
        validate_only=validate_only,
    )


def alter_configs_request(
    configs: Mapping[ConfigResource, Mapping[str, ConfigValue]], *, validate_only: bool
) -> AlterConfigsRequest:
    """Return the request to replace all configs for each resource."""
    return AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=name, value=config_text(value))
                    for name, value in some.items()
                ],
            )
            for resource, some in configs.items()
        ],
        validate_only=validate_only,
    )


# -- responses --------------------------------------------------------------------------------


def described_configs(
    response: DescribeConfigsResponse,
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    """Return the configs for each resource, by name."""
    described: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    for result in response.results:
        resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
        entries = {config.name: _entry(config) for config in result.configs}
        described[resource] = outcome(
            result.error_code, result.error_message, str(resource), entries
        )
    return described


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        is_sensitive=config.is_sensitive,
        is_read_only=config.read_only,
        type=ConfigType(config.config_type),
        synonyms=tuple(
            ConfigSynonym(
                name=synonym.name, value=synonym.value, source=ConfigSource(synonym.source)
            )
            for synonym in config.synonyms
        ),
        documentation=config.documentation,
    )


def altered_configs(
    responses: Iterable[AlterConfigsResourceResponse],
) -> dict[ConfigResource, KafkaError | None]:
    """Return the outcome for each resource."""
    altered: dict[ConfigResource, KafkaError | None] = {}
    for response in responses:
        kind = ConfigResourceType(response.resource_type)
        resource = ConfigResource(kind, response.resource_name)
        altered[resource] = outcome(
            response.error_code, response.error_message, str(resource), None
        )
    return altered
