"""Config resources: the code shared by AlterConfigs and IncrementalAlterConfigs.

The two APIs describe changes differently. Both convert each change to a `ResourceChange`, and
`alter_all` applies the changes. An error affects only the resource in which it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from plog.enums import ConfigResourceType
from plog.errors import InvalidRequest, KafkaError
from plog.settings import Setting, settings_of
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.alter_configs import AlterConfigsResourceResponse
from plogd.apis.change_deadline import ChangeDeadline
from plogd.apis.sliced_requests import ask_in_slices, check_changes
from plogd.broker import Broker
from plogd.config import BrokerConfig
from plogd.config.dynamic_config import broker_id_of
from plogd.fair_queue import Slices
from plogd.ports import Later, ready
from plogd.topic_config import TopicConfig

WITHOUT_SETTINGS: Final = {
    ConfigResourceType.CLIENT_METRICS: "this broker does not collect client metrics",
    ConfigResourceType.GROUP: "group settings apply to the consumer, share and streams protocols,"
    " which this broker does not support",
}
"""Kafka's resource types that have no settings in plog, each with the reason."""

MAX_SETTINGS: Final = 1_000
"""Maximum number of settings per resource in a request: several times as many as exist."""

R = TypeVar("R")

AlterTable: TypeAlias = Callable[[Mapping[str, str], Mapping[str, Setting]], dict[str, str]]
"""Returns the new settings for the given current settings and the table of valid settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """A requested change to one resource's settings."""

    resource_type: int
    name: str
    check: Callable[[], None]
    """Raises KafkaError for a request that is invalid regardless of the current settings."""
    alter: AlterTable
    alter_loggers: Callable[[], None] | None = None
    """Changes a broker's loggers; None if the API cannot change loggers."""


async def alter_all(
    resources: Sequence[R],
    change_of: Callable[[R], ResourceChange],
    broker: Broker,
    *,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    """Alter the resources and return their outcomes in order; reject repeated resources."""
    slices = Slices(broker.fair_queue)
    changes = [change_of(one) async for one in slices.over(resources)]
    # Counted before any change is applied: not even the first of two repetitions takes effect.
    counts: dict[tuple[int, str], int] = {}
    async for one in slices.over(changes):
        key = (one.resource_type, one.name)
        counts[key] = counts.get(key, 0) + 1

    deadline = ChangeDeadline(broker)

    def alter(one: ResourceChange) -> Later[None]:
        if counts[one.resource_type, one.name] > 1:
            raise InvalidRequest("Each resource must appear at most once.")
        # Before `_alter`, because an invalid request must not read and compare stored settings.
        one.check()
        return deadline.limit(lambda: _alter(one, broker, validate_only))

    outcomes = await ask_in_slices(changes, alter, broker)
    return lazy_array(list(zip(changes, outcomes, strict=True)), lambda one: _response(*one))


def check_resources(resources: Sequence[object]) -> None:
    """Raise PolicyViolation if a request changes too many resources."""
    check_changes(resources, "resources")


def check_setting_count(settings: Sized) -> None:
    """Raise InvalidRequest if a request has too many settings for one resource."""
    if len(settings) > MAX_SETTINGS:
        raise InvalidRequest(
            f"the request contains {len(settings)} settings for a single resource; at most"
            f" {MAX_SETTINGS} are allowed"
        )


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
        # AlterConfigs cannot change loggers: its request falls through to the last case.
        case ConfigResourceType.BROKER_LOGGER if one.alter_loggers is not None:
            check_broker(one.name, broker)
            one.alter_loggers()
            return ready(None)  # Not stored (KIP-412), so there is no write to wait for.
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            raise InvalidRequest(
                f"{one.name} cannot have settings: "
                + WITHOUT_SETTINGS[ConfigResourceType(one.resource_type)]
            )
        case _:
            raise InvalidRequest(f"Unknown resource type {one.resource_type}")


def check_broker(name: str, broker: Broker) -> None:
    """Raise InvalidRequest unless `name` is this broker's id.

    Kafka names a broker's logger resource after the broker.
    """
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    node_id = broker.config.node_id
    if broker_id_of(name) != node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node_id} but received {name}")


def _response(one: ResourceChange, error: KafkaError | None) -> AlterConfigsResourceResponse:
    if error is not None:
        return refused(one.resource_type, one.name, error)
    return AlterConfigsResourceResponse(
        resource_type=one.resource_type, resource_name=one.name, error_message=None
    )


def refused(resource_type: int, name: str, error: KafkaError) -> AlterConfigsResourceResponse:
    """Return the outcome for a resource that failed with `error`."""
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource_type,
        resource_name=name,
    )
