"""Validate, change and describe client quotas in the metadata store.

The changes to an entity are applied together or not at all. An entity that occurs more than once in
a request is not changed. `plogd.quota` enforces two of these quotas; see docs/security.md.

Requests take effect sequentially. Source: Kafka 4.0 ClientQuotaControlManager,
ClientQuotasImage, QuotaConfig; KIP-546, KIP-612.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from plog.errors import InvalidRequest, KafkaError, UnsupportedVersion
from plogd.concurrency import OneAtATime
from plogd.controller.batched_writes import Update, write_in_batches
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.store import MetadataStore
from plogd.ports import Later, spawn
from plogd.quota import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    QuotaEntity,
    entity_of,
    entity_of_key,
    quota_key,
)

EntityParts = Sequence[tuple[str, str | None]]
"""(type, name) pairs in a request; None as a name denotes the default entity."""
Quotas = Mapping[str, float]

_INT_MAX = 0x7FFFFFFF
_LONG_MAX = 0x7FFFFFFFFFFFFFFF
_MAX_WHOLE_NUMBERS: Final[Mapping[str, int | None]] = {
    PRODUCER_BYTE_RATE: _LONG_MAX,
    CONSUMER_BYTE_RATE: _LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
    "connection_creation_rate": _INT_MAX,
}
"""The largest value of each quota that must be a whole number; None if fractions are allowed."""
_QUOTAS_OF_IPS: Final = {"connection_creation_rate"}
_EXACT, _DEFAULT, _SPECIFIED = range(3)
"""The match types in DescribeClientQuotas."""
_ANY: Final = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """Changes to one entity, as pairs of a quota and its new value; None removes the quota."""

    entity: EntityParts
    ops: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A component of a quota filter: an entity type, and how the entity's name must match."""

    entity_type: str
    match_type: int
    match: str | None


class ClientQuotas:
    """All client quotas in the cluster; each broker has one instance."""

    def __init__(self, store: MetadataStore, fair_queue: FairQueue) -> None:
        self._store = store
        self._queue = fair_queue
        # Otherwise, requests of this broker that change the same entities would conflict.
        self._operations = OneAtATime()

    def watch(self, watcher: Callable[[QuotaEntity, Quotas | None], None]) -> None:
        """Call `watcher` with the quotas of every entity, now and whenever they change."""
        # The store itself reports only later changes.
        for key, (quotas, _) in self._store.load(("client_quota",)).items():
            watcher(entity_of_key(key), quotas)
        self._store.watch(
            ("client_quota",), lambda key, quotas, _: watcher(entity_of_key(key), quotas)
        )

    # -- changing -----------------------------------------------------------------------------

    def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> Later[list[KafkaError | None]]:
        """Change quotas; return an error or None for each alteration."""
        return self._operations.run_unless_cancelled(
            lambda: self._alter(alterations, validate_only)
        )

    async def _alter(
        self, alterations: Sequence[Alteration], validate_only: bool
    ) -> list[KafkaError | None]:
        slices = Slices(self._queue)
        times: dict[frozenset[tuple[str, str | None]], int] = {}
        # Counted first: an entity that occurs more than once is not changed at all.
        async for alteration in slices.over(alterations):
            entity = frozenset(alteration.entity)  # The order of the parts does not matter.
            times[entity] = times.get(entity, 0) + 1
        updates: list[Update] = []
        results: list[KafkaError | None] = []
        async for alteration in slices.over(alterations):
            try:
                if times[frozenset(alteration.entity)] > 1:
                    raise InvalidRequest("the request lists this entity more than once")
                updates.append(_update(alteration))
            except KafkaError as error:
                # Drop the traceback: thousands of tracebacks would use a lot of memory.
                results.append(error.bare())
            else:
                results.append(None)
        if updates and not validate_only:
            await write_in_batches(self._store, updates, "entities", self._queue)
        return results

    # -- describing ---------------------------------------------------------------------------

    def describe(
        self, components: Sequence[Component], *, strict: bool
    ) -> Later[list[tuple[QuotaEntity, Quotas]]]:
        """Return the entities that match all components and, with `strict`, have no other parts.

        Raises InvalidRequest, or UnsupportedVersion for an unknown entity type.
        """
        return spawn(self._describe(_wanted(components), strict))

    async def _describe(
        self, wanted: Mapping[str, str | None], strict: bool
    ) -> list[tuple[QuotaEntity, Quotas]]:
        found: dict[tuple[tuple[str, str], ...], tuple[QuotaEntity, Quotas]] = {}
        entities = self._store.load(("client_quota",))
        async for key, (quotas, _) in Slices(self._queue).over(entities.items()):
            entity = entity_of_key(key)
            parts = tuple(entity.parts())
            if _matches(dict(parts), wanted, strict=strict):
                found[parts] = (entity, quotas)
        return [found[parts] for parts in sorted(found)]


def _update(alteration: Alteration) -> Update:
    entity = _valid_entity(alteration.entity)
    ops = dict(alteration.ops)
    if len(ops) < len(alteration.ops):
        raise InvalidRequest("the request lists a quota for this entity more than once")
    for name, value in ops.items():
        if value is not None:
            _check_quota(entity, name, value)

    def new_value(old: Quotas | None) -> Quotas | None:
        quotas = {**(old or {}), **ops}
        # An entity without any remaining quotas is removed from the store.
        return {name: value for name, value in quotas.items() if value is not None} or None

    return Update(key=quota_key(entity), new_value=new_value)


def _valid_entity(parts: EntityParts) -> QuotaEntity:
    names = {kind: DEFAULT if name is None else name for kind, name in parts}
    if not names:
        raise InvalidRequest("the entity is empty: it must contain a user, a client-id or an ip")
    if len(names) < len(parts):
        raise InvalidRequest("the entity contains two parts of the same type")
    for kind, name in parts:
        if name == "":
            raise InvalidRequest(f"the {kind} is empty; use null for the default")
    try:
        entity = entity_of(names)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    if entity.ip is not None and len(names) > 1:
        raise InvalidRequest("an ip cannot be combined with a user or a client-id")
    # The default entity has an empty name, which is not an address.
    if entity.ip:
        _check_ip(entity.ip)
    return entity


def _check_ip(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Kafka also accepts a host name and resolves it.
        raise InvalidRequest(f"{text!r} is not an IP address") from None


def _check_quota(entity: QuotaEntity, name: str, value: float) -> None:
    if name not in _MAX_WHOLE_NUMBERS or (name in _QUOTAS_OF_IPS) != (entity.ip is not None):
        raise InvalidRequest(f"quota {name!r} does not apply to {entity}")
    # NaN must be excluded explicitly, because no comparison below rejects it.
    if not isfinite(value) or value <= 0:
        raise InvalidRequest(f"{name} must be greater than 0, not {value}")
    limit = _MAX_WHOLE_NUMBERS[name]
    if limit is not None and value > limit:
        raise InvalidRequest(f"{name} must be at most {limit}, not {value}")
    if limit is not None and value % 1 > 1e-6:  # The tolerance of ClientQuotaControlManager.
        raise InvalidRequest(f"{name} must be a whole number, not {value}")


def _wanted(components: Sequence[Component]) -> dict[str, str | None]:
    """Return the required name by entity type; `_ANY` matches every name."""
    wanted: dict[str, str | None] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequest("a component has an empty entity type")
        if kind in wanted:
            raise InvalidRequest(f"two components have the entity type {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            # Kafka's ClientQuotasImage also returns this error, because a later version may add
            # types.
            raise UnsupportedVersion(f"unknown entity type {kind!r}")
        wanted[kind] = _wanted_name(component)
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest("an ip cannot be combined with a user or a client-id")
    return wanted


def _wanted_name(component: Component) -> str | None:
    if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise InvalidRequest(f"unknown match type {component.match_type}")
    # Like Kafka, reject an exact match without a name, and any other match type with a name.
    if (component.match is None) is (component.match_type == _EXACT):
        raise InvalidRequest("an exact match requires a name; other match types must not have one")
    if component.match_type == _EXACT:
        return component.match
    return DEFAULT if component.match_type == _DEFAULT else _ANY


def _matches(names: Mapping[str, str], wanted: Mapping[str, str | None], *, strict: bool) -> bool:
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (name is _ANY or names[kind] == name) for kind, name in wanted.items()
    )
