"""DescribeUserScramCredentials, AlterUserScramCredentials (keys 50, 51): SCRAM credentials.

Serves version 0 of each API. Credentials are stored and described, but SASL is not supported yet
(docs/security.md). security/scram.py validates credentials, and controller/scram_users.py stores
them.
"""

from __future__ import annotations

from operator import attrgetter

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from plogd.apis.change_deadline import ChangeDeadline
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import check_changes
from plogd.broker import Broker
from plogd.controller.scram_users import Credentials, Deletion, Upsertion
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn
from plogd.security.unenforced_rules import NOT_ENFORCED

_NAME = attrgetter("name")


def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, broker: Broker
) -> Later[DescribeUserScramCredentialsResponse]:
    """Return the mechanisms and iterations of the users' credentials."""
    return spawn(_describe(request, broker))


async def _describe(
    request: DescribeUserScramCredentialsRequest, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    slices = Slices(broker.fair_queue)
    # As in Kafka, null and an empty list both mean all users.
    users = [user.name async for user in slices.over(request.users or ())]
    described = await broker.scram_users.describe(users)
    return DescribeUserScramCredentialsResponse(
        results=lazy_array(list(described.items()), lambda one: _described(*one)),
    )


def _described(user: str, found: Credentials | KafkaError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, KafkaError):
        return DescribeUserScramCredentialsResult(
            user=user, error_code=found.code, error_message=found.message
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        # Clients ignore the message in a successful result; plog's tools print it as a warning.
        error_message=NOT_ENFORCED,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in found.items()
        ],
    )


def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext, broker: Broker
) -> Later[AlterUserScramCredentialsResponse]:
    """Set and remove credentials; each user has its own outcome."""
    check_changes((*request.deletions, *request.upsertions), "users")
    return spawn(_alter(request, broker))


async def _alter(
    request: AlterUserScramCredentialsRequest, broker: Broker
) -> AlterUserScramCredentialsResponse:
    slices = Slices(broker.fair_queue)
    deletions = [
        Deletion(user=one.name, mechanism=one.mechanism)
        async for one in slices.over(request.deletions)
    ]
    upsertions = [
        Upsertion(
            user=one.name,
            mechanism=one.mechanism,
            iterations=one.iterations,
            salt=bytes(one.salt),
            # KIP-554: the client salts the password, so the broker never receives the password
            # itself.
            salted_password=bytes(one.salted_password),
        )
        async for one in slices.over(request.upsertions)
    ]
    altered = await ChangeDeadline(broker).limit(
        lambda: broker.scram_users.alter(deletions, upsertions)
    )
    return AlterUserScramCredentialsResponse(
        results=lazy_array(list(altered.items()), lambda one: _altered(*one))
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
    """Reject all users with `error`."""
    # A user with several mechanisms has one outcome, as in the handler's response.
    named = dict.fromkeys(map(_NAME, (*request.deletions, *request.upsertions)))
    return AlterUserScramCredentialsResponse(
        results=lazy_array(list(named), lambda user: _altered(user, error))
    )
