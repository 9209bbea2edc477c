"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from individual settings.

Serves versions 0-1; version 1 is flexible. KIP-339 introduced this API, and KIP-412 extended it to
a broker's loggers. config_resources.py contains the code shared with AlterConfigs.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from plogd.apis.config_resources import (
    MAX_SETTINGS,
    ResourceChange,
    alter_all,
    check_resources,
    check_setting_count,
    refused,
)
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.config.alterations import Alteration, apply_alterations, check_alterations
from plogd.config.loggers import alter_loggers
from plogd.ports import Later, spawn


def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, broker: Broker
) -> Later[IncrementalAlterConfigsResponse]:
    """Change individual settings of each resource."""
    check_resources(request.resources)
    validate_only = request.validate_only
    outcomes = spawn(
        alter_all(
            request.resources,
            lambda resource: _change(resource, broker, validate_only),
            broker,
            validate_only=validate_only,
        )
    )
    return outcomes.map(lambda responses: IncrementalAlterConfigsResponse(responses=responses))


def _change(
    resource: IncrementalAlterConfigsResource, broker: Broker, validate_only: bool
) -> ResourceChange:
    configs = resource.configs
    # `check` rejects a longer list, so its remaining settings need not be converted.
    alterations = [
        Alteration(name=config.name, operation=config.config_operation, value=config.value)
        for config in configs[:MAX_SETTINGS]
    ]

    def check() -> None:
        check_setting_count(configs)
        check_alterations(alterations)

    return ResourceChange(
        resource_type=resource.resource_type,
        name=resource.resource_name,
        check=check,
        alter=lambda old, rows: apply_alterations(old, alterations, rows),
        # A function, because `alter_all` must first check the whole request for repeated resources.
        alter_loggers=lambda: alter_loggers(broker.logs, alterations, validate_only=validate_only),
    )


def refuse_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    """Reject all resources with `error`."""
    return IncrementalAlterConfigsResponse(
        responses=lazy_array(
            request.resources, lambda one: refused(one.resource_type, one.resource_name, error)
        )
    )
