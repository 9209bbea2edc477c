"""What requests about settings have in common: types of resources, and changing them one by one.

AlterConfigs and IncrementalAlterConfigs differ in what they ask of a resource, which is a
`ResourceChange`; `alter_all` finds out what becomes of each. An error is one resource's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from plog.enums import ConfigResourceType
from plog.errors import InvalidRequest, KafkaError
from plog.settings import Setting, settings_of
from plog.wire.messages.alter_configs import AlterConfigsResourceResponse
from plogd.apis.in_slices import WRITES_AT_ONCE, ask_in_slices, check_changes
from plogd.config import BrokerConfig
from plogd.config.dynamic import broker_id_of
from plogd.ports import Later, ready, spawn
from plogd.topic_config import TopicConfig

if TYPE_CHECKING:
    from plogd.broker import Broker


WITHOUT_SETTINGS: Final = {
    ConfigResourceType.CLIENT_METRICS: "this broker collects no metrics of its clients",
    ConfigResourceType.GROUP: "a group's settings are for the consumer, share and streams"
    " protocols, which this broker does not serve",
}
"""Resources that exist in Kafka and have no settings here, and why."""

AlterTable: TypeAlias = Callable[[Mapping[str, str], Mapping[str, Setting]], dict[str, str]]
"""Makes new settings of those there are, all of which are rows of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """What a request asks of one resource."""

    resource_type: int
    name: str
    check: Callable[[], None]
    """Raises the KafkaError for a request that makes no sense in itself."""
    alter: AlterTable
    alter_loggers: Callable[[], None] | None = None
    """Changes a broker's loggers; None where the request cannot."""


def alter_all(
    changes: Sequence[ResourceChange], broker: Broker, *, validate_only: bool
) -> Later[list[AlterConfigsResourceResponse]]:
    """What becomes of each resource, in order; one that is named twice is not changed."""
    check_changes(changes, "resources")
    times = Counter((one.resource_type, one.name) for one in changes)

    def alter(one: ResourceChange) -> Later[None]:
        if times[one.resource_type, one.name] > 1:
            raise InvalidRequest("Each resource must appear at most once.")
        one.check()
        return _alter(one, broker, validate_only)

    return spawn(_outcomes(changes, alter, broker))


def _alter(one: ResourceChange, broker: Broker, validate_only: bool) -> Later[None]:
    match one.resource_type:
        case ConfigResourceType.TOPIC:
            topic_rows = settings_of(TopicConfig)
            return broker.configs.alter_topic(
                one.name, lambda old: one.alter(old, topic_rows), validate_only=validate_only
            )
        case ConfigResourceType.BROKER:
            rows = settings_of(BrokerConfig)
            return broker.configs.alter_broker(
                one.name, lambda old: one.alter(old, rows), validate_only=validate_only
            )
        case ConfigResourceType.BROKER_LOGGER if one.alter_loggers is not None:
            check_broker(one.name, broker)
            one.alter_loggers()
            return ready(None)
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            raise InvalidRequest(
                f"{one.name} cannot have settings: "
                + WITHOUT_SETTINGS[ConfigResourceType(one.resource_type)]
            )
        case _:
            raise InvalidRequest(f"Unknown resource type {one.resource_type}")


def check_broker(name: str, broker: Broker) -> None:
    """Raise InvalidRequest if a logger's resource is not that of this broker."""
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    node_id = broker.config.node_id
    if broker_id_of(name) != node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node_id} but received {name}")


async def _outcomes(
    changes: Sequence[ResourceChange],
    alter: Callable[[ResourceChange], Later[None]],
    broker: Broker,
) -> list[AlterConfigsResourceResponse]:
    responses = []
    outcomes = await ask_in_slices(changes, alter, broker, WRITES_AT_ONCE)
    for one, error in zip(changes, outcomes, strict=True):
        response = AlterConfigsResourceResponse(
            resource_type=one.resource_type, resource_name=one.name, error_message=None
        )
        if error is not None:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return responses


def refused(resource_type: int, name: str, error: KafkaError) -> AlterConfigsResourceResponse:
    """The outcome of a resource whose request failed as a whole."""
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource_type,
        resource_name=name,
    )
