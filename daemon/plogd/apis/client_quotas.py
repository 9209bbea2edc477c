"""DescribeClientQuotas, AlterClientQuotas (keys 48, 49): the quotas of users and clients.

Serves versions 0-1 of each API; version 1 is flexible.

controller/client_quotas.py validates and stores quotas, and quota.py enforces them.
"""

from __future__ import annotations

from plog.errors import InvalidRequest, KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntry,
    EntityData,
    ValueData,
)
from plogd.apis.change_deadline import ChangeDeadline
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import check_changes
from plogd.broker import Broker
from plogd.controller.client_quotas import Alteration, Component, Quotas
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn
from plogd.quota import QuotaEntity

_MAX_COMPONENTS = 100
"""Maximum number of components in a filter. A valid filter has at most one per entity type."""


def handle_describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext, broker: Broker
) -> Later[DescribeClientQuotasResponse]:
    """Return the quotas of the matching entities."""
    if len(request.components) > _MAX_COMPONENTS:
        raise InvalidRequest(
            f"a filter can have at most {_MAX_COMPONENTS} components, but this filter has"
            f" {len(request.components)}"
        )
    components = [
        Component(entity_type=one.entity_type, match_type=one.match_type, match=one.match)
        for one in request.components
    ]
    found = broker.client_quotas.describe(components, strict=request.strict)
    return found.map(
        lambda entities: DescribeClientQuotasResponse(
            entries=lazy_array(entities, lambda one: _described(*one))
        )
    )


def _described(entity: QuotaEntity, quotas: Quotas) -> DescribedEntry:
    return DescribedEntry(
        # The name of a default entity is empty in the store and null in the protocol.
        entity=[
            EntityData(entity_type=kind, entity_name=name or None) for kind, name in entity.parts()
        ],
        values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
    )


def handle_alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext, broker: Broker
) -> Later[AlterClientQuotasResponse]:
    """Change the quotas; each entity has its own outcome."""
    check_changes(request.entries, "entities")
    return spawn(_alter(request, broker))


async def _alter(request: AlterClientQuotasRequest, broker: Broker) -> AlterClientQuotasResponse:
    slices = Slices(broker.fair_queue)
    alterations = [_alteration(entry) async for entry in slices.over(request.entries)]
    results = await ChangeDeadline(broker).limit(
        lambda: broker.client_quotas.alter(alterations, validate_only=request.validate_only)
    )
    altered = list(zip(request.entries, results, strict=True))
    return AlterClientQuotasResponse(entries=lazy_array(altered, lambda one: _altered(*one)))


def _alteration(entry: AlterationEntry) -> Alteration:
    return Alteration(
        entity=[(one.entity_type, one.entity_name) for one in entry.entity],
        # As in Kafka, the value of a removed quota is ignored.
        ops=[(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def _altered(entry: AlterationEntry, error: KafkaError | None) -> AlteredEntry:
    return AlteredEntry(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=entry.entity,
    )


def refuse_describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext, error: KafkaError
) -> DescribeClientQuotasResponse:
    """Reject the request with `error`."""
    # As in Kafka, null: an empty list would mean that no entity matches.
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message, entries=None
    )


def refuse_alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext, error: KafkaError
) -> AlterClientQuotasResponse:
    """Reject all entities with `error`."""
    return AlterClientQuotasResponse(
        entries=lazy_array(request.entries, lambda entry: _altered(entry, error))
    )
