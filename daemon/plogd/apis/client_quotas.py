"""DescribeClientQuotas, AlterClientQuotas (keys 48, 49): how much users and clients may take.

Versions served 0-1 of each: 1 flexible.

Which quotas there can be is controller/client_quotas.py's knowledge, what they do quota.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
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
from plogd.apis.context import RequestContext
from plogd.controller.client_quotas import Alteration, Component
from plogd.ports import Later

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext, broker: Broker
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that match."""
    components = [
        Component(entity_type=one.entity_type, match_type=one.match_type, match=one.match)
        for one in request.components
    ]
    found = broker.client_quotas.describe(components, strict=request.strict)
    return DescribeClientQuotasResponse(
        entries=[
            DescribedEntry(
                entity=[
                    EntityData(entity_type=kind, entity_name=name or None)
                    for kind, name in entity.parts()
                ],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
            )
            for entity, quotas in found
        ],
    )


def handle_alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext, broker: Broker
) -> Later[AlterClientQuotasResponse]:
    """Change what can be changed, entity by entity."""
    altered = broker.client_quotas.alter(
        [_alteration(entry) for entry in request.entries], validate_only=request.validate_only
    )
    return altered.map(
        lambda results: AlterClientQuotasResponse(
            entries=[
                _altered(entry, error)
                for entry, error in zip(request.entries, results, strict=True)
            ]
        )
    )


def _alteration(entry: AlterationEntry) -> Alteration:
    return Alteration(
        entity=[(one.entity_type, one.entity_name) for one in entry.entity],
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
    """The answer without entries."""
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message, entries=None
    )


def refuse_alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext, error: KafkaError
) -> AlterClientQuotasResponse:
    """The answer in which every entity gets `error`."""
    return AlterClientQuotasResponse(entries=[_altered(entry, error) for entry in request.entries])
