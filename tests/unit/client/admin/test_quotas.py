"""QuotaAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.quotas import (
    ANY_NAME,
    CLIENT_ID,
    USER,
    QuotaEntity,
    alter_client_quotas_request,
    describe_client_quotas_request,
    described_quotas,
)
from plog.errors import InvalidRequest, UnsupportedVersion
from plog.wire.messages.client_quotas import (
    DescribeClientQuotasResponse,
    DescribedEntry,
    EntityData,
    ValueData,
)
from tests.unit.client.admin.conftest import Site

ALICE = QuotaEntity.of(user="alice")
ANYBODY = QuotaEntity.of(user=None, client_id="batch")


# -- pure -------------------------------------------------------------------------------------


def test_entity_ignores_the_order_of_its_parts() -> None:
    assert QuotaEntity.of(client_id="batch", user=None) == ANYBODY
    assert QuotaEntity.of_parts({"ip": "192.0.2.1"}) == QuotaEntity.of(ip="192.0.2.1")


def test_filter_matches_a_name_the_default_or_any() -> None:
    which = {USER: "alice", CLIENT_ID: None, "ip": ANY_NAME}
    request = describe_client_quotas_request(which, strict=True)
    assert [(x.entity_type, x.match_type, x.match) for x in request.components] == [
        ("user", 0, "alice"),
        ("client-id", 1, None),
        ("ip", 2, None),
    ]
    assert request.strict


def test_quota_is_set_or_removed() -> None:
    request = alter_client_quotas_request(
        {ALICE: {"producer_byte_rate": 5.0, "consumer_byte_rate": None}}, validate_only=True
    )
    [entry] = request.entries
    assert [(x.key, x.value, x.remove) for x in entry.ops] == [
        ("producer_byte_rate", 5.0, False),
        ("consumer_byte_rate", 0.0, True),
    ]
    assert [(x.entity_type, x.entity_name) for x in entry.entity] == [("user", "alice")]


def test_response_without_entries_has_no_quotas() -> None:
    assert described_quotas(DescribeClientQuotasResponse(entries=None)) == {}
    entry = DescribedEntry(
        entity=[
            EntityData(entity_type="user", entity_name=None),
            EntityData(entity_type="client-id", entity_name="batch"),
        ],
        values=[ValueData(key="request_percentage", value=7.5)],
    )
    response = DescribeClientQuotasResponse(entries=[entry])
    assert described_quotas(response) == {ANYBODY: {"request_percentage": 7.5}}


# -- at a broker ------------------------------------------------------------------------------


def test_quotas_are_set_described_and_removed(site: Site) -> None:
    admin = site.admin
    quotas = {ALICE: {"producer_byte_rate": 5.0}, ANYBODY: {"consumer_byte_rate": 7.0}}
    assert site.run(admin.alter_client_quotas(quotas)) == {ALICE: None, ANYBODY: None}
    assert site.run(admin.describe_client_quotas()) == quotas
    assert site.run(admin.describe_client_quotas({USER: "alice"})) == {ALICE: quotas[ALICE]}
    assert site.run(admin.describe_client_quotas({USER: ANY_NAME})) == quotas
    assert site.run(admin.describe_client_quotas({USER: ANY_NAME}, strict=True)) == {
        ALICE: quotas[ALICE]
    }
    site.run(admin.alter_client_quotas({ALICE: {"producer_byte_rate": None}})).raise_first()
    assert site.run(admin.describe_client_quotas()) == {ANYBODY: quotas[ANYBODY]}


def test_validate_only_sets_nothing_and_entities_have_own_outcomes(site: Site) -> None:
    admin = site.admin
    wrong = QuotaEntity.of(tribe="x")
    trial = site.run(
        admin.alter_client_quotas(
            {wrong: {"producer_byte_rate": 5.0}, ALICE: {"producer_byte_rate": 5.0}},
            validate_only=True,
        )
    )
    assert isinstance(trial[wrong], InvalidRequest)
    assert trial[ALICE] is None
    assert site.run(admin.describe_client_quotas()) == {}
    with pytest.raises(UnsupportedVersion, match="unknown entity type 'tribe'"):
        site.run(admin.describe_client_quotas({"tribe": "x"}))
