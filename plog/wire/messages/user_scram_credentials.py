"""DescribeUserScramCredentials, AlterUserScramCredentials (keys 50, 51): users with passwords.

Passwords never travel: the client salts and hashes. What it sends instead is as good as a password
to whoever sees it, so it is left out of every text form. Source: KIP-554.
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
    """Which users to describe; null or none means all."""

    users: list[UserName] | None = field()


class CredentialInfo(Struct):
    """A mechanism a user has a credential for."""

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
    """Which credentials there are, by user; never the credentials."""

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

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, …)"


class AlterUserScramCredentialsRequest(
    ApiMessage, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """Credentials to remove and to set."""

    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


class AlterUserScramCredentialsResult(Struct):
    """What became of the changes of one user."""

    user: str = field()
    error_code: int16 = field()
    error_message: str | None = field()


class AlterUserScramCredentialsResponse(
    ApiMessage, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """What became of each user."""

    throttle_time_ms: int32 = field()
    results: list[AlterUserScramCredentialsResult] = field()
