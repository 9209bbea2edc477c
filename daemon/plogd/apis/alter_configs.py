"""AlterConfigs (key 33): replace all settings of a resource.

Serves versions 0-2; version 2 is flexible.

If two clients use this API to change different settings of a resource, the second request undoes
the first change; KIP-339 added IncrementalAlterConfigs for this reason. config_resources.py
contains the code shared with IncrementalAlterConfigs.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
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
from plogd.config.alterations import check_names, check_values
from plogd.ports import Later, spawn


def handle_alter_configs(
    request: AlterConfigsRequest, context: RequestContext, broker: Broker
) -> Later[AlterConfigsResponse]:
    """Replace the settings of each resource."""
    check_resources(request.resources)
    outcomes = spawn(
        alter_all(request.resources, _change, broker, validate_only=request.validate_only)
    )
    return outcomes.map(lambda responses: AlterConfigsResponse(responses=responses))


def _change(resource: AlterConfigsResource) -> ResourceChange:
    configs = resource.configs
    # `check` rejects a longer list, so its remaining settings need not be converted.
    pairs = [(config.name, config.value) for config in configs[:MAX_SETTINGS]]

    def check() -> None:
        check_setting_count(configs)
        check_names(name for name, _ in pairs)
        check_values(pairs)

    # `alter_loggers` is omitted: KIP-412 changes loggers only through IncrementalAlterConfigs.
    return ResourceChange(
        resource_type=resource.resource_type,
        name=resource.resource_name,
        check=check,
        # `check` rejects null values; the condition only narrows the type for mypy.
        alter=lambda _old, _rows: {name: value for name, value in pairs if value is not None},
    )


def refuse_alter_configs(
    request: AlterConfigsRequest, context: RequestContext, error: KafkaError
) -> AlterConfigsResponse:
    """Reject all resources with `error`."""
    return AlterConfigsResponse(
        responses=lazy_array(
            request.resources, lambda one: refused(one.resource_type, one.resource_name, error)
        )
    )
