"""Requests that create or describe thousands of quotas, ACLs, users and settings."""

from __future__ import annotations

import pytest

from plog.wire.messages.acls import AclCreation, CreateAclsRequest, DescribeAclsRequest
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from plog.wire.schema import ApiMessage
from tests.attack.conftest import Attack
from tests.attack.frames import response_size
from tests.attack.target import Target
from tests.fault.peers import request_frame

_COUNT = 9_000
_NAMES = [f"user-{number}" for number in range(_COUNT)]
_ANY, _TOPIC, _CLIENT_METRICS = 1, 2, 16


def _quotas(key: str) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterationEntry(
                entity=[EntityData(entity_type="user", entity_name=name)],
                ops=[OpData(key=key, value=1e9)],
            )
            for name in _NAMES
        ]
    )


def _acls() -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=_TOPIC,
                resource_name="t",
                resource_pattern_type=3,
                principal=f"User:{name}",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in _NAMES
        ]
    )


def _credentials() -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
            )
            for name in _NAMES
        ]
    )


def _settings() -> IncrementalAlterConfigsRequest:
    """Return changes of settings of missing topics."""
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000")
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=_TOPIC, resource_name=name, configs=[config]
            )
            for name in _NAMES
        ]
    )


_FLOODS: dict[str, list[tuple[ApiMessage, int]]] = {
    "quotas": [
        (_quotas("producer_byte_rate"), 1),
        (_quotas("consumer_byte_rate"), 1),
        (
            DescribeClientQuotasRequest(
                components=[ComponentData(entity_type="user", match_type=2)], strict=False
            ),
            1,
        ),
    ],
    "acls": [
        (_acls(), 3),
        (
            DescribeAclsRequest(
                resource_type_filter=_ANY,
                resource_name_filter=None,
                pattern_type_filter=_ANY,
                principal_filter=None,
                host_filter=None,
                operation=_ANY,
                permission_type=_ANY,
            ),
            3,
        ),
    ],
    "credentials": [
        (_credentials(), 0),
        (_credentials(), 0),
        (DescribeUserScramCredentialsRequest(users=None), 0),
    ],
    "settings": [(_settings(), 1)],
}


@pytest.mark.parametrize("flood", _FLOODS)
def test_flood_of(target: Target, attack: Attack, flood: str) -> None:
    frames = [request_frame(message, version) for message, version in _FLOODS[flood]]
    with attack(), target.connect() as peer:
        for frame in frames:
            response_size(peer, frame)
