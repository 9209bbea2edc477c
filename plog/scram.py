"""SCRAM computations: the keys derived from a password, and the proofs of client and server.

Pure. plog/client/network/sasl.py implements the client's side of the exchange;
plogd/security/scram.py stores the credentials of users. Source: RFC 5802, RFC 7677; Kafka 4.3
ScramFormatter, ScramMechanism.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum


class ScramMechanism(IntEnum):
    """A SCRAM mechanism and its number in the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The name of the mechanism's hash function in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def sasl_name(self) -> str:
        """The mechanism's name in ``sasl.mechanism``."""
        return self.name.replace("_", "-")


def salted_password(
    mechanism: ScramMechanism, password: bytes, *, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password; this takes about 1 ms for 4096 iterations, deliberately."""
    # Unlike RFC 5802, Kafka's ScramFormatter does not normalize passwords with SASLprep, so neither
    # do the callers.
    # The function Hi() of RFC 5802 is PBKDF2 with HMAC.
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a client proves that it knows the password."""
    # hmac.digest() computes a short message in one call of OpenSSL, without an object.
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the server's form of the client key, which can verify proofs but not create them."""
    return hashlib.new(mechanism.hash_name, client_key(mechanism, salted)).digest()


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a server proves that it has the user's credential."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def client_proof(mechanism: ScramMechanism, salted: bytes, exchange: bytes) -> bytes:
    """Return the client's proof for `exchange`, the messages so far, joined by commas."""
    key = client_key(mechanism, salted)
    signature = hmac.digest(stored_key(mechanism, salted), exchange, mechanism.hash_name)
    # The server computes the same signature, recovers the key with it, and hashes the key to
    # compare it with the stored key.
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def server_signature(mechanism: ScramMechanism, salted: bytes, exchange: bytes) -> bytes:
    """Return the server's proof for `exchange`, which has the same form as in `client_proof`."""
    return hmac.digest(server_key(mechanism, salted), exchange, mechanism.hash_name)
