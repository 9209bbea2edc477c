"""Describe, set and remove users' SCRAM credentials (KIP-554).

The client never sends passwords: it salts and hashes them, which takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, log_notes, outcome, raise_if_error
from plog.enums import WireEnum
from plog.errors import ErrorCode, KafkaError
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

_SALT_BYTES = 26
"""The salt length in bytes, as in Kafka's tools."""


class ScramMechanism(WireEnum):
    """A SCRAM mechanism; it determines the hash function."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The mechanism's name in settings.

        >>> ScramMechanism.SCRAM_SHA_256.sasl_name
        'SCRAM-SHA-256'
        """
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialInfo:
    """A user's credential without its secrets, which brokers never return."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A password to set for a user; `salt` is random by default."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    # Kafka's default and minimum, from RFC 7677.
    iterations: int = 4096
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


class CredentialAdmin(AdminBase):
    """The operations on SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Return the credentials of each user, by default of all users with credentials.

        Errors, per user: ResourceNotFound, DuplicateResource.
        """
        names = None if users is None else list(dict.fromkeys(users))
        # An empty list would request all users (KIP-554).
        if names == []:
            return Results({})
        request = DescribeUserScramCredentialsRequest(
            users=None if names is None else [UserName(name=name) for name in names]
        )
        response = await self._cluster.ask_any(request, DescribeUserScramCredentialsResponse)
        raise_if_error(response.error_code, response.error_message, "the SCRAM credentials")
        log_notes("SCRAM users", ((x.error_code, x.error_message) for x in response.results))
        return Results(described_credentials(response))

    async def alter_user_scram_credentials(
        self, alterations: Iterable[ScramUpsertion | ScramDeletion]
    ) -> Results[str, None]:
        """Set and remove credentials; for each user, either all changes apply or none.

        Errors, per user: UnacceptableCredential, ResourceNotFound, DuplicateResource,
        UnsupportedSaslMechanism.
        """
        response = await self._cluster.ask_controller(
            alter_user_scram_credentials_request(list(alterations)),
            AlterUserScramCredentialsResponse,
            # A broker that is no longer the controller reports NOT_CONTROLLER in each result.
            retry_on=lambda answer: any(
                x.error_code == ErrorCode.NOT_CONTROLLER for x in answer.results
            ),
        )
        log_notes("SCRAM users", ((x.error_code, x.error_message) for x in response.results))
        return Results(altered_credentials(response))


def alter_user_scram_credentials_request(
    alterations: Sequence[ScramUpsertion | ScramDeletion],
) -> AlterUserScramCredentialsRequest:
    """Return the request to set and remove credentials."""
    return AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=one.user, mechanism=one.mechanism)
            for one in alterations
            if isinstance(one, ScramDeletion)
        ],
        upsertions=[_upsertion(one) for one in alterations if isinstance(one, ScramUpsertion)],
    )


def _upsertion(one: ScramUpsertion) -> ScramCredentialUpsertion:
    # Imported here because it loads OpenSSL, which other families do not need.
    import hashlib
    import os

    # Equal passwords must have different hashes, so each one gets its own salt.
    salt = os.urandom(_SALT_BYTES) if one.salt is None else one.salt
    password = one.password.encode() if isinstance(one.password, str) else one.password
    hash_name = "sha512" if one.mechanism is ScramMechanism.SCRAM_SHA_512 else "sha256"
    # `pbkdf2_hmac` needs at least one iteration. The request still contains the caller's number,
    # which the broker rejects if it is too low.
    salted = hashlib.pbkdf2_hmac(hash_name, password, salt, max(1, one.iterations))
    return ScramCredentialUpsertion(
        name=one.user,
        mechanism=one.mechanism,
        iterations=one.iterations,
        salt=salt,
        salted_password=salted,
    )


# -- responses --------------------------------------------------------------------------------


def described_credentials(
    response: DescribeUserScramCredentialsResponse,
) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
    """Return the credentials of each user."""
    return {
        result.user: outcome(
            result.error_code,
            result.error_message,
            f"user {result.user}",
            tuple(
                ScramCredentialInfo(
                    mechanism=ScramMechanism(info.mechanism), iterations=info.iterations
                )
                for info in result.credential_infos
            ),
        )
        for result in response.results
    }


def altered_credentials(
    response: AlterUserScramCredentialsResponse,
) -> dict[str, KafkaError | None]:
    """Return the outcome for each user."""
    return {
        result.user: outcome(result.error_code, result.error_message, f"user {result.user}", None)
        for result in response.results
    }
