"""DescribeUserScramCredentials, AlterUserScramCredentials (keys 50, 51): users with passwords.

Version served 0 of each. Stored and described; there is no SASL yet (docs/security.md), and
responses say so (security/enforcement.py). The rules of a credential are in security/scram.py,
storing it in controller/scram_users.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import check_changes
from plogd.controller.scram_users import Credentials, Deletion, Upsertion
from plogd.ports import Later
from plogd.security.enforcement import NOT_ENFORCED

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    """Which credentials the users have."""
    described = broker.scram_users.describe([user.name for user in request.users or ()])
    return DescribeUserScramCredentialsResponse(
        results=[_described(user, found) for user, found in described.items()],
    )


def _described(user: str, found: Credentials | KafkaError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, KafkaError):
        return DescribeUserScramCredentialsResult(
            user=user, error_code=found.code, error_message=found.message
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_message=NOT_ENFORCED,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in found.items()
        ],
    )


def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext, broker: Broker
) -> Later[AlterUserScramCredentialsResponse]:
    """Set and remove credentials, user by user."""
    check_changes((*request.deletions, *request.upsertions), "users")
    altered = broker.scram_users.alter(
        [Deletion(user=one.name, mechanism=one.mechanism) for one in request.deletions],
        [
            Upsertion(
                user=one.name,
                mechanism=one.mechanism,
                iterations=one.iterations,
                salt=bytes(one.salt),
                salted_password=bytes(one.salted_password),
            )
            for one in request.upsertions
        ],
    )
    return altered.map(
        lambda results: AlterUserScramCredentialsResponse(
            results=[_altered(user, error) for user, error in results.items()]
        )
    )


def _altered(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user,
        error_code=0 if error is None else error.code,
        error_message=NOT_ENFORCED if error is None else error.message,
    )


def refuse_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """The answer in which every user gets `error`."""
    users = [*(one.name for one in request.deletions), *(one.name for one in request.upsertions)]
    return AlterUserScramCredentialsResponse(
        results=[_altered(user, error) for user in dict.fromkeys(users)]
    )
