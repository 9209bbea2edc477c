"""DescribeClientQuotas, AlterClientQuotas (keys 48, 49): quotas for users, clients and addresses.

Changes by version:

  1  flexible

Source: KIP-546.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, float64, int8, int16, int32


class EntityData(Struct):
    """A component of an entity: its type, and its name or null for the default."""

    entity_type: str = field()
    entity_name: str | None = field()


class ComponentData(Struct):
    """A filter for one component type: 0 this name, 1 the default, 2 any specified name."""

    entity_type: str = field()
    match_type: int8 = field()
    match: str | None = field()


class DescribeClientQuotasRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    """A filter for entities; `strict` excludes those with other components."""

    components: list[ComponentData] = field()
    strict: bool = field()


class ValueData(Struct):
    """One quota."""

    key: str = field()
    value: float64 = field()


class DescribedEntry(Struct):
    """An entity and its quotas."""

    entity: list[EntityData] = field()
    values: list[ValueData] = field()


class DescribeClientQuotasResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    """Quotas, by entity; null if there was an error."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    entries: list[DescribedEntry] | None = field()


class OpData(Struct):
    """A quota to set or remove."""

    key: str = field()
    value: float64 = field()
    # A flag instead of a null value, because a float64 cannot be null.
    remove: bool = field()


class AlterationEntry(Struct):
    """The changes to one entity."""

    entity: list[EntityData] = field()
    ops: list[OpData] = field()


class AlterClientQuotasRequest(
    ApiMessage, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    """Changes by entity, to apply or only to validate."""

    entries: list[AlterationEntry] = field()
    validate_only: bool = field()


class AlteredEntry(Struct):
    """The result for one entity."""

    error_code: int16 = field()
    error_message: str | None = field()
    entity: list[EntityData] = field()


class AlterClientQuotasResponse(
    ApiMessage, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    """The result for each entity."""

    throttle_time_ms: int32 = field()
    entries: list[AlteredEntry] = field()
