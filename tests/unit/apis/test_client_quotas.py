"""DescribeClientQuotas and AlterClientQuotas: requests and responses as frames."""

from __future__ import annotations

import math
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from plogd.metadata.embedded_store import EmbeddedStore
from tests.helpers.sim.sim_broker import SimBroker

RATE = "producer_byte_rate"
EXACT, DEFAULT, SPECIFIED = range(3)
INVALID = ErrorCode.INVALID_REQUEST
Entity = dict[str, str | None]


def make() -> SimBroker:
    return SimBroker().start()


def entry(entity: Entity, /, **ops: float | None) -> AlterationEntry:
    return AlterationEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in ops.items()
        ],
    )


def alter(broker: SimBroker, *entries: AlterationEntry, **fields: Any) -> list[int]:
    version = fields.pop("version", 1)
    answer = broker.ask(AlterClientQuotasRequest(entries=list(entries), **fields), version)
    assert [one.entity for one in answer.entries] == [one.entity for one in entries]
    assert all(bool(one.error_message) is bool(one.error_code) for one in answer.entries)
    return [one.error_code for one in answer.entries]


def component(entity_type: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=match_type, match=match)


def ask(broker: SimBroker, *components: ComponentData, strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    return broker.ask(request, 1)


def describe(broker: SimBroker, *components: ComponentData, strict: bool = False) -> list[Any]:
    answer = ask(broker, *components, strict=strict)
    assert answer.error_code == 0, answer.error_message
    return [
        (
            {one.entity_type: one.entity_name for one in described.entity},
            {one.key: one.value for one in described.values},
        )
        for described in answer.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(version: int) -> None:
    broker = make()
    entity: Entity = {"user": "u", "client-id": None}
    set_two = entry(entity, producer_byte_rate=1000.0, request_percentage=12.5)
    assert alter(broker, set_two, version=version) == [0]
    request = DescribeClientQuotasRequest()
    [described] = broker.ask(request, version).entries
    assert [(x.entity_type, x.entity_name) for x in described.entity] == list(entity.items())
    assert [(x.key, x.value) for x in described.values] == [
        (RATE, 1000.0),
        ("request_percentage", 12.5),
    ]
    alter(broker, entry(entity, producer_byte_rate=None), version=version)
    assert describe(broker) == [(entity, {"request_percentage": 12.5})]
    alter(broker, entry(entity, request_percentage=None, consumer_byte_rate=None), version=version)
    assert describe(broker) == []


def test_every_type_of_entity_and_quota_is_stored() -> None:
    broker = make()
    quotas = {
        RATE: 1.0,
        "consumer_byte_rate": 2.0,
        "request_percentage": 0.5,
        "controller_mutation_rate": 0.25,
    }
    entities: list[Entity] = [
        {"client-id": None},
        {"client-id": "c"},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "c"},
        {"user": "u"},
        {"user": "u", "client-id": None},
        {"user": "u", "client-id": "c"},
    ]
    assert alter(broker, *(entry(entity, **quotas) for entity in entities)) == [0] * 8
    ips: list[Entity] = [{"ip": None}, {"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]
    assert alter(broker, *(entry(one, connection_creation_rate=9.0) for one in ips)) == [0] * 3
    described = describe(broker)
    assert [one for one in described if "ip" not in one[0]] == [(x, quotas) for x in entities]
    assert [one for one, _ in described if "ip" in one] == ips


@pytest.mark.parametrize(
    ("entity", "ops", "problem"),
    [
        ({}, {RATE: 1.0}, "the entity is empty"),
        ({"user": ""}, {RATE: 1.0}, "the user is empty"),
        ({"group": "g"}, {RATE: 1.0}, "'group'"),
        ({"user": "u", "ip": "192.0.2.1"}, {RATE: 1.0}, "an ip cannot be combined"),
        ({"ip": "example.org"}, {"connection_creation_rate": 1.0}, "is not an IP address"),
        (
            {"ip": "192.0.2.1"},
            {RATE: 1.0},
            "quota 'producer_byte_rate' does not apply to ip 192.0.2.1",
        ),
        ({"user": "u"}, {"connection_creation_rate": 1.0}, "to user u"),
        ({"user": None}, {"speed": 1.0}, "quota 'speed' does not apply to user <default>"),
        ({"user": "u"}, {RATE: 0.0}, "greater than 0"),
        ({"user": "u"}, {RATE: -1.0}, "greater than 0"),
        ({"user": "u"}, {RATE: math.nan}, "greater than 0"),
        ({"user": "u"}, {"request_percentage": math.inf}, "greater than 0"),
        ({"user": "u"}, {RATE: 1.5}, "whole number"),
        ({"user": "u"}, {RATE: 1e19}, "at most"),
        ({"ip": None}, {"connection_creation_rate": 2.0**31}, "at most"),
    ],
)
def test_invalid_alteration_is_refused(entity: Entity, ops: dict[str, float], problem: str) -> None:
    broker = make()
    request = AlterClientQuotasRequest(entries=[entry(entity, **ops), entry({"user": "g"}, **OK)])
    bad, good = broker.ask(request, 1).entries
    assert bad.error_code == INVALID
    assert problem in bad.error_message
    assert good.error_code == 0
    assert describe(broker) == [({"user": "g"}, OK)]


OK = {RATE: 5.0}


def test_entity_or_quota_named_twice_is_not_changed() -> None:
    broker = make()
    twice = entry({"user": "v"}, **OK)
    twice.ops.append(OpData(key=RATE, value=6.0))
    part_twice = entry({"user": "w"}, **OK)
    part_twice.entity.append(EntityData(entity_type="user", entity_name="x"))
    entries = [
        entry({"user": "u", "client-id": "c"}, **OK),
        entry({"client-id": "c", "user": "u"}, consumer_byte_rate=1.0),
        twice,
        part_twice,
    ]
    assert alter(broker, *entries) == [INVALID] * 4
    assert describe(broker) == []


def test_validate_only_changes_nothing() -> None:
    broker = make()
    entries = [entry({"user": "u"}, **OK), entry({"user": "v"}, nonsense=1.0)]
    assert alter(broker, *entries, validate_only=True) == [0, INVALID]
    assert describe(broker) == []


def test_concurrent_changes_are_both_applied() -> None:
    broker = make()
    asked = [
        broker.begin(AlterClientQuotasRequest(entries=[entry({"user": "u"}, **{key: 5.0})]), 1)
        for key in (RATE, "consumer_byte_rate")
    ]
    broker.settle()
    assert [one.response().entries[0].error_code for one in asked] == [0, 0]
    assert describe(broker) == [({"user": "u"}, {RATE: 5.0, "consumer_byte_rate": 5.0})]


ENTITIES: list[Entity] = [
    {"client-id": "c"},
    {"ip": None},
    {"user": None},
    {"user": "u"},
    {"user": "u", "client-id": None},
    {"user": "u", "client-id": "c"},
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [0, 1, 2, 3, 4, 5]),
        ([], True, []),
        ([("user", EXACT, "u")], False, [3, 4, 5]),
        ([("user", EXACT, "u")], True, [3]),
        ([("user", DEFAULT, None)], False, [2]),
        ([("user", SPECIFIED, None)], False, [2, 3, 4, 5]),
        ([("user", SPECIFIED, None)], True, [2, 3]),
        ([("user", SPECIFIED, None), ("client-id", DEFAULT, None)], True, [4]),
        ([("client-id", SPECIFIED, None)], False, [0, 4, 5]),
        ([("ip", SPECIFIED, None)], True, [1]),
        ([("ip", EXACT, "192.0.2.1")], True, []),
    ],
)
def test_entities_are_matched_part_by_part(
    components: list[tuple[str, int, str | None]], strict: bool, expected: list[int]
) -> None:
    broker = make()
    alter(broker, *(entry(one, **({"connection_creation_rate": 1.0} if "ip" in one else OK))
                    for one in ENTITIES))  # fmt: skip
    found = describe(broker, *(component(*one) for one in components), strict=strict)
    assert sorted(ENTITIES.index(one) for one, _ in found) == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "u")], INVALID),
        ([("planet", EXACT, "u")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "u")], INVALID),
        ([("user", SPECIFIED, "u")], INVALID),
        ([("user", 3, None)], INVALID),
        ([("user", EXACT, "u"), ("user", DEFAULT, None)], INVALID),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], INVALID),
    ],
)
def test_invalid_filter_is_refused(
    components: list[tuple[str, int, str | None]], code: int
) -> None:
    answer = ask(make(), *(component(*one) for one in components))
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


def test_quotas_survive_power_loss_and_apply_immediately() -> None:
    broker = make()
    alter(broker, entry({"user": None}, producer_byte_rate=7.0, consumer_byte_rate=8.0))
    alter(broker, entry({"user": None}, consumer_byte_rate=None), entry({"user": "u"}, **OK))
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert describe(again) == [({"user": None}, {RATE: 7.0}), ({"user": "u"}, OK)]
    assert again.broker.quotas.produce.find("anybody", "c") == (7.0, ("anybody", None))
    assert not again.broker.quotas.fetch.is_set


def test_failed_disk_is_an_error_for_every_entity() -> None:
    broker = make()
    broker.broker.store.storage_failed()
    codes = alter(broker, entry({"user": "u"}, **OK), entry({"user": "v"}, **OK))
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_quotas_of_many_entities_are_changed_without_a_scan_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = make()
    scans: list[object] = []
    load = EmbeddedStore.load

    def counted(self: EmbeddedStore, prefix: Any) -> Any:
        scans.append(prefix)
        return load(self, prefix)

    monkeypatch.setattr(EmbeddedStore, "load", counted)
    entries = [entry({"user": f"u{n}"}, producer_byte_rate=n + 1.0) for n in range(500)]
    assert alter(broker, *entries) == [0] * 500
    assert scans == []
    assert len(describe(broker)) == 500
    assert len(scans) == 1
    assert len(describe(broker.restart())) == 500
