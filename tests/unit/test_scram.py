"""plog/scram.py: the example of RFC 7677, and proofs between client and server."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from plog import scram
from plog.scram import ScramMechanism

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
EXCHANGE = (
    f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}"
).encode()


def test_proofs_equal_example_of_rfc_7677() -> None:
    sha_256 = ScramMechanism.SCRAM_SHA_256
    salted = scram.salted_password(sha_256, b"pencil", salt=SALT, iterations=4096)
    proof = b64encode(scram.client_proof(sha_256, salted, EXCHANGE))
    assert proof == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    signature = b64encode(scram.server_signature(sha_256, salted, EXCHANGE))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_server_verifies_proof_with_stored_key(mechanism: ScramMechanism) -> None:
    salted = scram.salted_password(mechanism, b"secret", salt=b"salt", iterations=4096)
    proof = scram.client_proof(mechanism, salted, b"exchange")
    stored = scram.stored_key(mechanism, salted)
    signature = hmac.digest(stored, b"exchange", mechanism.hash_name)
    key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.new(mechanism.hash_name, key).digest() == stored


def test_mechanisms_have_sasl_names() -> None:
    assert [each.sasl_name for each in ScramMechanism] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
