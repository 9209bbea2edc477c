"""DescribeUserScramCredentials and AlterUserScramCredentials: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from plogd.metadata.embedded_store import EmbeddedStore
from plogd.security.unenforced_rules import NOT_ENFORCED
from tests.helpers.sim.sim_broker import SimBroker

SECRET = b"salted and secret"
SHA_256, SHA_512 = 1, 2


def make() -> SimBroker:
    return SimBroker().start()


def upsertion(name: str = "u", mechanism: int = SHA_256, **fields: Any) -> ScramCredentialUpsertion:
    values: dict[str, Any] = {"iterations": 4096, "salt": b"salt", "salted_password": SECRET}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **(values | fields))


def deletion(name: str = "u", mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(broker: SimBroker, *changes: Any) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    results = broker.ask(request, 0).results
    assert all(one.error_message for one in results)
    assert all((one.error_message == NOT_ENFORCED) is (one.error_code == 0) for one in results)
    assert len({one.user for one in results}) == len(results)
    return {one.user: one.error_code for one in results}


def describe(broker: SimBroker, *users: str) -> dict[str, Any]:
    """Return the iterations by mechanism, or the error code, of each user."""
    names = [UserName(name=user) for user in users] or None
    answer = broker.ask(DescribeUserScramCredentialsRequest(users=names), 0)
    assert answer.error_code == 0
    return {
        one.user: one.error_code or {x.mechanism: x.iterations for x in one.credential_infos}
        for one in answer.results
    }


def test_credentials_are_set_described_replaced_and_removed() -> None:
    broker = make()
    assert alter(broker, upsertion(), upsertion("v", SHA_512, iterations=8192)) == {"u": 0, "v": 0}
    assert alter(broker, upsertion("u", SHA_512)) == {"u": 0}
    assert describe(broker) == {"u": {1: 4096, 2: 4096}, "v": {2: 8192}}
    assert alter(broker, upsertion(iterations=5000)) == {"u": 0}
    assert describe(broker, "u") == {"u": {1: 5000, 2: 4096}}
    assert alter(broker, deletion(), deletion("v", SHA_512)) == {"u": 0, "v": 0}
    assert describe(broker) == {"u": {2: 4096}}


def test_stored_keys_are_derived_from_the_salted_password() -> None:
    broker = make()
    alter(broker, upsertion())
    [(kept, _)] = broker.broker.store.load(("scram", "u")).values()
    assert kept.salt == b"salt"
    assert len(kept.stored_key) == len(kept.server_key) == 32
    assert SECRET not in (kept.stored_key, kept.server_key)


def test_secrets_are_in_no_file_or_log_line() -> None:
    broker = make()
    alter(broker, upsertion(), upsertion("v", iterations=1))
    output = "\n".join([*broker.reports, repr(upsertion()), str(broker.bugs)])
    assert "secret" not in output
    path = "/data/__cluster_metadata-0/00000000000000000000.log"
    assert SECRET not in broker.files.read_file(path)
    assert b"salt" in broker.files.read_file(path), "this is where it would be"


def test_each_user_has_its_own_outcome() -> None:
    broker = make()
    alter(broker, upsertion("there"))
    outcomes = alter(
        broker,
        deletion("there"),
        deletion("nobody"),
        deletion("there-not", SHA_512),
        upsertion("good"),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16385),
        upsertion("strange", 3),
        upsertion("", SHA_256),
        deletion("odd", 0),
    )
    assert outcomes == {
        "there": 0,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "there-not": ErrorCode.RESOURCE_NOT_FOUND,
        "good": 0,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    assert describe(broker) == {"good": {1: 4096}}


def test_user_named_twice_is_not_changed() -> None:
    broker = make()
    alter(broker, upsertion("u"))
    outcomes = alter(
        broker,
        deletion("u"),
        upsertion("u", SHA_512),
        upsertion("v"),
        upsertion("v", SHA_512),
        upsertion("w"),
    )
    duplicate = ErrorCode.DUPLICATE_RESOURCE
    assert outcomes == {"u": duplicate, "v": duplicate, "w": 0}
    assert describe(broker) == {"u": {1: 4096}, "w": {1: 4096}}


def test_users_are_described_by_name() -> None:
    broker = make()
    alter(broker, upsertion("u"))
    assert describe(broker, "u", "nobody", "v", "v") == {
        "u": {1: 4096},
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "v": ErrorCode.DUPLICATE_RESOURCE,
    }
    everybody = broker.ask(DescribeUserScramCredentialsRequest(users=[]), 0)
    assert [one.user for one in everybody.results] == ["u"]


def test_credentials_and_their_removal_survive_power_loss() -> None:
    broker = make()
    alter(broker, upsertion("kept"), upsertion("gone"))
    alter(broker, deletion("gone"))
    before = broker.broker.store.load(("scram", "kept"))
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert describe(again) == {"kept": {1: 4096}}
    assert again.broker.store.load(("scram", "kept")) == before


def test_failed_disk_is_an_error_for_every_user() -> None:
    broker = make()
    broker.broker.store.storage_failed()
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(broker, upsertion("u"), upsertion("v")) == {"u": failed, "v": failed}


def test_change_logs_that_users_are_not_enforced() -> None:
    broker = make()
    alter(broker, upsertion(), upsertion("v"))
    alter(broker, upsertion("", SHA_256))
    alter(broker, deletion("v"))
    assert [line.partition(" (")[0] for line in broker.reports if NOT_ENFORCED in line] == [
        "changed 2 SCRAM credentials",
        "changed 1 SCRAM credentials",
    ]


def test_description_and_metrics_say_that_users_are_not_enforced() -> None:
    broker = make()
    alter(broker, upsertion(), upsertion("u2", SHA_512), upsertion("v"))
    answer = broker.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert {one.error_message for one in answer.results} == {NOT_ENFORCED}
    assert b"plog_scram_users_stored_not_enforced 3\n" in broker.metrics.expose()


def test_many_users_are_changed_without_a_scan_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make()
    scans: list[object] = []
    load = EmbeddedStore.load

    def counted(self: EmbeddedStore, prefix: Any) -> Any:
        scans.append(prefix)
        return load(self, prefix)

    monkeypatch.setattr(EmbeddedStore, "load", counted)
    changes = [upsertion(f"u{number:03}") for number in range(500)]
    assert set(alter(broker, *changes).values()) == {0}
    assert scans == []
    assert list(describe(broker)) == [f"u{number:03}" for number in range(500)]
    assert len(scans) == 1
