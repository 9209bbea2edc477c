"""SCRAM credentials of users: which there are, setting and removing them (KIP-554).

A password never travels: it is salted and hashed here, which takes some milliseconds.
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
"""As many characters as Kafka's own salts have."""


class ScramMechanism(WireEnum):
    """How a password is hashed."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Its name in settings.

        >>> ScramMechanism.SCRAM_SHA_256.sasl_name
        'SCRAM-SHA-256'
        """
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialInfo:
    """A credential a user has; the credential itself is told to nobody."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A password to set. Without a `salt` a new one is made."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = 4096
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


class CredentialAdmin(AdminBase):
    """See the module's text."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """The credentials of each user; None tells of all who have some.

        Errors, each a user's own: ResourceNotFound, DuplicateResource.
        """
        names = None if users is None else list(dict.fromkeys(users))
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
        """Set and remove credentials; all or none of a user's.

        Errors, each a user's own: UnacceptableCredential, ResourceNotFound, DuplicateResource,
        UnsupportedSaslMechanism.
        """
        response = await self._cluster.ask_controller(
            alter_user_scram_credentials_request(list(alterations)),
            AlterUserScramCredentialsResponse,
            retry_on=lambda answer: any(
                x.error_code == ErrorCode.NOT_CONTROLLER for x in answer.results
            ),
        )
        log_notes("SCRAM users", ((x.error_code, x.error_message) for x in response.results))
        return Results(altered_credentials(response))


def alter_user_scram_credentials_request(
    alterations: Sequence[ScramUpsertion | ScramDeletion],
) -> AlterUserScramCredentialsRequest:
    """The request to set and to remove credentials."""
    return AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=one.user, mechanism=one.mechanism)
            for one in alterations
            if isinstance(one, ScramDeletion)
        ],
        upsertions=[_upsertion(one) for one in alterations if isinstance(one, ScramUpsertion)],
    )


def _upsertion(one: ScramUpsertion) -> ScramCredentialUpsertion:
    import hashlib  # It brings OpenSSL with it, which the other families can do without.
    import os

    salt = os.urandom(_SALT_BYTES) if one.salt is None else one.salt
    password = one.password.encode() if isinstance(one.password, str) else one.password
    hash_name = "sha512" if one.mechanism is ScramMechanism.SCRAM_SHA_512 else "sha256"
    # Fewer rounds than one cannot be hashed; the broker refuses the number that was meant.
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
    """The credentials of each user."""
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
    """What became of each user's changes."""
    return {
        result.user: outcome(result.error_code, result.error_message, f"user {result.user}", None)
        for result in response.results
    }
