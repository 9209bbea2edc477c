"""``plog configs`` for users, clients and IP addresses: quotas and SCRAM credentials.

command.py imports this module only when necessary, because the imports delay a command. Source:
Kafka 4.3 ConfigCommand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plog.cli.configs.entities import DEFAULT, Entity
from plog.cli.options import UsageError
from plog.cli.output import Table, show
from plog.client.admin.quotas import (
    ANY_NAME,
    CLIENT_ID,
    IP,
    USER,
    QuotaAdmin,
    QuotaEntity,
    QuotaFilter,
)
from plog.client.admin.scram_credentials import (
    CredentialAdmin,
    ScramCredentialInfo,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from plog.client.network.cluster import Cluster
from plog.errors import ResourceNotFound
from plog.wire.as_json import java_double

_PARTS: Final = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_WORDS: Final = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_QUOTAS: Final = {
    "users": (
        "consumer_byte_rate",
        "controller_mutation_rate",
        "producer_byte_rate",
        "request_percentage",
    ),
    "ips": ("connection_creation_rate",),
}
_MECHANISMS: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism if mechanism}
# The password comes last, because it can contain commas and equals signs.
_CREDENTIAL: Final = re.compile(r"(?:iterations=(\d+),)?password=(.*)", re.DOTALL)


async def describe_quotas(cluster: Cluster, entities: Sequence[Entity], *, as_json: bool) -> int:
    """Print quotas and, if the entity is a user without a client, SCRAM credentials."""
    parts: dict[str, Any] = {_PARTS[kind]: _match(name) for kind, name in entities}
    found = await QuotaAdmin(cluster).describe_client_quotas(_typed(parts), strict=False)
    # A filter that is not strict also matches entities with more components: for --user alone, it
    # matches the quotas for that user's clients.
    quotas = {entity: each for entity, each in found.items() if len(entity.parts) == len(parts)}
    users: Mapping[str, tuple[ScramCredentialInfo, ...]] = {}
    first = entities[0]
    # Credentials belong to a user; there is no default credential.
    if [entity.type for entity in entities] == ["users"] and first.name != DEFAULT:
        users = await _credentials(cluster, first.name)
    show(
        lambda: [
            *(f"Quota configs for {_named(x)} are {_rates(y)}" for x, y in quotas.items()),
            *(
                f"SCRAM credential configs for user-principal '{user}' are {_iterations(some)}"
                for user, some in users.items()
            ),
        ],
        lambda: [
            Table(
                ("ENTITY", "SETTING", "VALUE"),
                [
                    *((_named(x), name, y[name]) for x, y in quotas.items() for name in y),
                    *(
                        (user, each.mechanism.sasl_name, f"{each.iterations} iterations")
                        for user, some in users.items()
                        for each in some
                    ),
                ],
            )
        ],
        lambda: {
            "quotas": [{"entity": dict(x.parts), "quotas": y} for x, y in quotas.items()],
            "users": [
                {
                    "user": user,
                    "credentials": [
                        {"mechanism": x.mechanism.sasl_name, "iterations": x.iterations}
                        for x in some
                    ],
                }
                for user, some in users.items()
            ],
        },
        as_json=as_json,
    )
    return 0


def _match(name: str | None) -> Any:
    if name is None:
        return ANY_NAME
    return name or None  # In a filter, None means the default entity.


def _typed(parts: dict[str, Any]) -> QuotaFilter:
    return parts


async def _credentials(
    cluster: Cluster, user: str | None
) -> dict[str, tuple[ScramCredentialInfo, ...]]:
    """Return the credentials of `user`, or of all users if `user` is None."""
    names = None if user is None else [user]
    results = await CredentialAdmin(cluster).describe_user_scram_credentials(names)
    for error in results.errors.values():
        if not isinstance(error, ResourceNotFound):  # Most users have no credentials.
            raise error
    return {name: some for name, some in results.values_by_key.items() if some}


def _named(entity: QuotaEntity) -> str:
    parts = dict(entity.parts)
    return ", ".join(
        f"the default {word}" if parts[kind] is None else f"{word} '{parts[kind]}'"
        for kind, word in _WORDS.items()
        if kind in parts
    )


def _rates(quotas: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={java_double(float(value))}" for name, value in quotas.items())


def _iterations(credentials: Sequence[ScramCredentialInfo]) -> str:
    return ", ".join(f"{x.mechanism.sasl_name}=iterations={x.iterations}" for x in credentials)


async def alter_quotas(
    cluster: Cluster, entities: Sequence[Entity], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Change quotas or a user's credentials. Raises UsageError and the broker's errors."""
    names = {*added, *deleted}
    credentials = names & set(_MECHANISMS)
    # Two requests would be necessary. If the second failed, only half of the change would take
    # effect.
    if credentials and credentials != names:
        raise UsageError(
            "cannot change quotas and SCRAM credentials together: use separate commands"
        )
    kind, user = entities[0]
    if credentials:
        if [entity.type for entity in entities] != ["users"] or not user:
            raise UsageError("SCRAM credentials require one user: --user NAME")
        await _alter_credentials(cluster, user, added, deleted)
        return
    known = _QUOTAS["ips" if kind == "ips" else "users"]
    for name in sorted(names):
        if name not in known:
            raise UsageError(f"{name} is not a quota of {kind}; use one of {', '.join(known)}")
    values: dict[str, float | None] = dict.fromkeys(deleted)
    for name, text in added.items():
        try:
            # Quotas are doubles in the protocol (KIP-546), because request_percentage has
            # fractions.
            values[name] = float(text)
        except ValueError:
            raise UsageError(f"{name}={text}: a quota must be a number") from None
    parts = {_PARTS[each.type]: each.name or None for each in entities}
    entity, admin = QuotaEntity.of_parts(parts), QuotaAdmin(cluster)
    if deleted:
        # As in Kafka 4.3's tool, deleting an unset quota is an error, unlike an unset setting.
        current = (await admin.describe_client_quotas(parts, strict=True)).get(entity, {})
        unset = [name for name in deleted if name not in current]
        if unset:
            raise UsageError(f"Invalid config(s): {','.join(unset)}: not set for {_named(entity)}")
    (await admin.alter_client_quotas({entity: values})).raise_first()


async def _alter_credentials(
    cluster: Cluster, user: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    alterations: list[ScramUpsertion | ScramDeletion] = [
        ScramDeletion(user=user, mechanism=_MECHANISMS[name]) for name in deleted
    ]
    for name, text in added.items():
        match = _CREDENTIAL.fullmatch(text)
        if match is None:
            raise UsageError(
                f"invalid {name}: use [iterations=8192,password=...] or [password=...]"
            )
        iterations, password = match.groups()
        mechanism = _MECHANISMS[name]
        alterations.append(
            ScramUpsertion(user=user, mechanism=mechanism, password=password)
            if iterations is None
            else ScramUpsertion(
                user=user, mechanism=mechanism, password=password, iterations=int(iterations)
            )
        )
    admin = CredentialAdmin(cluster)
    for each in alterations:  # A request must not contain the same user twice.
        (await admin.alter_user_scram_credentials([each])).raise_first()
