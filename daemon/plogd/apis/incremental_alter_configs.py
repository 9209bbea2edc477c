"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single settings.

Versions served 0-1; 1 is flexible (KIP-339). A broker's loggers are changed by it, too (KIP-412).

What is allowed is decided by the resource's room; see config_resources.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from plogd.apis.config_resources import ResourceChange, alter_all, refused
from plogd.apis.context import RequestContext
from plogd.config.alterations import Alteration, altered, check_alterations
from plogd.config.loggers import alter_loggers
from plogd.ports import Later

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, broker: Broker
) -> Later[IncrementalAlterConfigsResponse]:
    """Change single settings of each resource."""
    validate_only = request.validate_only
    changes = [_change(resource, broker, validate_only) for resource in request.resources]
    outcomes = alter_all(changes, broker, validate_only=validate_only)
    return outcomes.map(lambda responses: IncrementalAlterConfigsResponse(responses=responses))


def _change(
    resource: IncrementalAlterConfigsResource, broker: Broker, validate_only: bool
) -> ResourceChange:
    alterations = [
        Alteration(name=config.name, operation=config.config_operation, value=config.value)
        for config in resource.configs
    ]
    return ResourceChange(
        resource_type=resource.resource_type,
        name=resource.resource_name,
        check=lambda: check_alterations(alterations),
        alter=lambda old, rows: altered(old, alterations, rows),
        alter_loggers=lambda: alter_loggers(broker.logs, alterations, validate_only=validate_only),
    )


def refuse_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    """The answer in which every resource gets `error`."""
    return IncrementalAlterConfigsResponse(
        responses=[
            refused(one.resource_type, one.resource_name, error) for one in request.resources
        ]
    )
