"""DescribeUserScramCredentials, AlterUserScramCredentials (keys 50, 51): SCRAM credentials.

Clients never send passwords: they send salted hashes. Source: KIP-554.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class UserName(Struct):
    """A user."""

    name: str = field()


class DescribeUserScramCredentialsRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """Users to describe; null or empty means all."""

    users: list[UserName] | None = field()


class CredentialInfo(Struct):
    """A mechanism for which a user has a credential."""

    mechanism: int8 = field()
    iterations: int32 = field()


class DescribeUserScramCredentialsResult(Struct):
    """One user."""

    user: str = field()
    error_code: int16 = field()
    error_message: str | None = field()
    credential_infos: list[CredentialInfo] = field()


class DescribeUserScramCredentialsResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """The mechanisms of each user, without the credentials themselves."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[DescribeUserScramCredentialsResult] = field()


class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str = field()
    mechanism: int8 = field()


class ScramCredentialUpsertion(Struct):
    """A credential to set."""

    name: str = field()
    mechanism: int8 = field()
    iterations: int32 = field()
    salt: bytes = field()
    salted_password: bytes = field()

    # The repr may be logged, and the salted password is sufficient to authenticate.
    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, …)"


class AlterUserScramCredentialsRequest(
    ApiMessage, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """Credentials to remove and to set."""

    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str = field()
    error_code: int16 = field()
    error_message: str | None = field()


class AlterUserScramCredentialsResponse(
    ApiMessage, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """The result for each user."""

    throttle_time_ms: int32 = field()
    results: list[AlterUserScramCredentialsResult] = field()
