"""CredentialAdmin: conversion of requests, and operations on a broker."""

from __future__ import annotations

import hmac

import pytest

from plog.client.admin.scram_credentials import (
    ScramCredentialInfo,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    alter_user_scram_credentials_request,
)
from plog.errors import ResourceNotFound, UnacceptableCredential
from tests.unit.client.admin.conftest import Site

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def _pencil(**fields: object) -> ScramUpsertion:
    """Return a credential for the user in the example of RFC 7677."""
    salt = bytes.fromhex("5b6d99687bd5e9e8d5d9bd0f8c1b1d9c")
    values: dict[str, object] = {
        "user": "user",
        "mechanism": SHA_256,
        "password": "pencil",
        "salt": salt,
    }
    return ScramUpsertion(**values | fields)  # type: ignore[arg-type]


# -- pure -------------------------------------------------------------------------------------


def test_password_is_salted_and_hashed_and_never_sent() -> None:
    request = alter_user_scram_credentials_request([_pencil(iterations=1)])
    [upsertion] = request.upsertions
    # The first block of PBKDF2 with one round is the HMAC of the salt and the block's number.
    once = hmac.digest(b"pencil", upsertion.salt + b"\0\0\0\1", "sha256")
    assert upsertion.salted_password == once
    assert b"pencil" not in request.encode(0)
    assert len(upsertion.salted_password) == 32


def test_each_password_gets_its_own_salt() -> None:
    request = alter_user_scram_credentials_request([_pencil(salt=None), _pencil(salt=None)])
    first, second = request.upsertions
    assert first.salt != second.salt
    assert len(first.salt) >= 16


def test_mechanism_determines_the_hash() -> None:
    [upsertion] = alter_user_scram_credentials_request([_pencil(mechanism=SHA_512)]).upsertions
    assert len(upsertion.salted_password) == 64
    assert upsertion.mechanism == 2


def test_repr_hides_the_password() -> None:
    assert "pencil" not in repr(_pencil())


# -- at a broker ------------------------------------------------------------------------------


def test_credentials_are_set_described_and_removed(site: Site) -> None:
    admin = site.admin
    altered = site.run(
        admin.alter_user_scram_credentials(
            [
                ScramUpsertion(user="alice", mechanism=SHA_256, password="a"),
                ScramUpsertion(user="bob", mechanism=SHA_512, password=b"b", iterations=8192),
            ]
        )
    )
    assert altered == {"alice": None, "bob": None}
    alice = (ScramCredentialInfo(mechanism=SHA_256, iterations=4096),)
    bob = (ScramCredentialInfo(mechanism=SHA_512, iterations=8192),)
    assert site.run(admin.describe_user_scram_credentials()) == {"alice": alice, "bob": bob}
    assert site.run(admin.describe_user_scram_credentials(["bob"])) == {"bob": bob}

    removed = site.run(
        admin.alter_user_scram_credentials(
            [
                ScramDeletion(user="alice", mechanism=SHA_256),
                ScramDeletion(user="carol", mechanism=SHA_256),
            ]
        )
    )
    assert removed["alice"] is None
    assert isinstance(removed["carol"], ResourceNotFound)
    described = site.run(admin.describe_user_scram_credentials(["alice", "bob"]))
    assert isinstance(described["alice"], ResourceNotFound)
    assert described["bob"] == bob


def test_weak_credential_is_refused(site: Site) -> None:
    weak = ScramUpsertion(user="alice", mechanism=SHA_256, password="a", iterations=1)
    with pytest.raises(UnacceptableCredential, match="iterations"):
        site.run(site.admin.alter_user_scram_credentials([weak])).get("alice")
    none = ScramUpsertion(user="alice", mechanism=SHA_256, password="a", iterations=0)
    with pytest.raises(UnacceptableCredential):
        site.run(site.admin.alter_user_scram_credentials([none])).get("alice")


def test_empty_user_list_describes_no_users(site: Site) -> None:
    assert site.run(site.admin.describe_user_scram_credentials([])) == {}
    assert site.sim.requests == []


def test_stored_but_unenforced_users_are_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    alice = ScramUpsertion(user="alice", mechanism=SHA_256, password="a")
    site.run(site.admin.alter_user_scram_credentials([alice]))
    site.run(site.admin.describe_user_scram_credentials())
    assert caplog.messages == ["SCRAM users: stored, not enforced"] * 2
