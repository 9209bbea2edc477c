"""Client quotas: limits for users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.errors import ErrorCode, KafkaError
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

# The match types of DescribeClientQuotas (KIP-546).
_EXACT, _DEFAULT, _ANY = range(3)


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """An entity that has quotas. Each part is an entity type with a name, or None for the default.

    >>> QuotaEntity.of(user="alice", client_id=None)
    QuotaEntity(parts=(('client-id', None), ('user', 'alice')))
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, **names: str | None) -> QuotaEntity:
        """Return the entity with the given parts; the keywords are user, client_id and ip."""
        # A Python keyword argument cannot contain the hyphen of ``client-id``.
        return cls.of_parts({kind.replace("_", "-"): name for kind, name in names.items()})

    @classmethod
    def of_parts(cls, names: Mapping[str, str | None]) -> QuotaEntity:
        """Return the entity with the given parts, keyed by Kafka's names for entity types."""
        # Entities with the same parts in a different order must be equal.
        return cls(tuple(sorted(names.items())))


class _AnyName:
    """The type of `ANY_NAME`."""

    def __repr__(self) -> str:
        return "ANY_NAME"


ANY_NAME: Final = _AnyName()
"""In a filter, a value that matches every name of the entity type."""

QuotaFilter: TypeAlias = Mapping[str, str | _AnyName | None]
"""The required parts by entity type. A part is a name, None for the default, or `ANY_NAME`."""


class QuotaAdmin(AdminBase):
    """The operations on client quotas."""

    async def describe_client_quotas(
        self, which: QuotaFilter | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas for all entities that match the filter, by default for all entities.

        With `strict`, entities that have additional parts do not match.
        """
        request = describe_client_quotas_request(which or {}, strict=strict)
        response = await self._cluster.ask_any(request, DescribeClientQuotasResponse)
        raise_if_error(response.error_code, response.error_message, "the quotas")
        return described_quotas(response)

    async def alter_client_quotas(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Results[QuotaEntity, None]:
        """Set each entity's quotas by name; None removes a quota. Errors: InvalidRequest, ..."""
        response = await self._cluster.ask_controller(
            alter_client_quotas_request(quotas, validate_only=validate_only),
            AlterClientQuotasResponse,
            # A broker that is no longer the controller reports NOT_CONTROLLER in each result.
            retry_on=lambda answer: any(
                x.error_code == ErrorCode.NOT_CONTROLLER for x in answer.entries
            ),
        )
        return Results(altered_quotas(response))


# -- requests ---------------------------------------------------------------------------------


def describe_client_quotas_request(
    which: QuotaFilter, *, strict: bool
) -> DescribeClientQuotasRequest:
    """Return the request to describe quotas."""
    return DescribeClientQuotasRequest(
        components=[_component(kind, name) for kind, name in which.items()], strict=strict
    )


def _component(kind: str, name: str | _AnyName | None) -> ComponentData:
    if isinstance(name, _AnyName):
        return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    # In the protocol, `match` is null both for the default and for any name; only the match type
    # differs.
    if name is None:
        return ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=name)


def alter_client_quotas_request(
    quotas: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> AlterClientQuotasRequest:
    """Return the request to set and remove quotas."""
    return AlterClientQuotasRequest(
        entries=[
            AlterationEntry(
                entity=[
                    EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts
                ],
                ops=[
                    # The field is not nullable; the broker ignores the value of a removed quota.
                    OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in quotas.items()
        ],
        validate_only=validate_only,
    )


# -- responses --------------------------------------------------------------------------------


def _entity(parts: Iterable[EntityData]) -> QuotaEntity:
    return QuotaEntity.of_parts({part.entity_type: part.entity_name for part in parts})


def described_quotas(
    response: DescribeClientQuotasResponse,
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas in a response."""
    return {
        _entity(entry.entity): {value.key: value.value for value in entry.values}
        for entry in response.entries or ()
    }


def altered_quotas(response: AlterClientQuotasResponse) -> dict[QuotaEntity, KafkaError | None]:
    """Return the outcome for each entity."""
    altered: dict[QuotaEntity, KafkaError | None] = {}
    for entry in response.entries:
        entity = _entity(entry.entity)
        about = f"the quotas of {dict(entity.parts)}"
        altered[entity] = outcome(entry.error_code, entry.error_message, about, None)
    return altered
