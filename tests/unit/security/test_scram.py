"""Stored SCRAM credentials."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from typing import Any

import pytest

from plog.errors import UnacceptableCredential, UnsupportedSaslMechanism
from plog.scram import ScramMechanism
from plogd.security.scram import check_user, credential_of, mechanism_of

SHA_256 = ScramMechanism.SCRAM_SHA_256


def test_stored_credential_verifies_the_exchange_of_rfc_7677() -> None:
    """The client's proof verifies with the stored key; the server key signs the response."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    kept = credential_of(SHA_256, salt=salt, salted_password=salted, iterations=4096)

    nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,{nonce}"
    ).encode()
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(kept.stored_key, exchange, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    answer = b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert hmac.digest(kept.server_key, exchange, "sha256") == answer


def test_mechanisms_differ_in_their_hash() -> None:
    sizes = [
        len(
            credential_of(
                mechanism_of(number), salt=b"s", salted_password=b"p", iterations=4096
            ).stored_key
        )
        for number in (1, 2)
    ]
    assert sizes == [32, 64]


@pytest.mark.parametrize("number", [0, 3, -1])
def test_other_mechanisms_are_unknown(number: int) -> None:
    with pytest.raises(UnsupportedSaslMechanism, match=str(number)):
        mechanism_of(number)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"iterations": 4095}, "too few"),
        ({"iterations": 16385}, "too many"),
        ({"salted_password": b""}, "empty"),
        ({"salt": bytes(1_001)}, "at most 1000"),
    ],
)
def test_weak_credential_is_rejected(fields: dict[str, Any], problem: str) -> None:
    values: dict[str, Any] = {"salt": b"s", "salted_password": b"p", "iterations": 4096}
    with pytest.raises(UnacceptableCredential, match=problem):
        credential_of(SHA_256, **(values | fields))


def test_minimum_and_maximum_iterations_are_accepted() -> None:
    for iterations in (4096, 16384):
        credential_of(SHA_256, salt=b"s", salted_password=b"p", iterations=iterations)


def test_user_name_must_not_be_empty_or_too_long() -> None:
    check_user("a")
    check_user("a" * 1_000)
    for name in ("", "a" * 1_001):
        with pytest.raises(UnacceptableCredential):
            check_user(name)


def test_repr_of_a_credential_omits_its_secrets() -> None:
    kept = credential_of(SHA_256, salt=b"salt", salted_password=b"secret", iterations=4096)
    assert repr(kept) == "ScramCredential(iterations=4096)"
