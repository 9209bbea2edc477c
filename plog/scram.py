"""The mathematics of SCRAM: what a password becomes, and how each side proves that it knows it.

Pure. The client's conversation is network/sasl.py; what a broker keeps is plogd/security/scram.py.
Source: RFC 5802, RFC 7677; Kafka 4.3 ScramFormatter, ScramMechanism.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum


class ScramMechanism(IntEnum):
    """The mechanisms, by the protocol's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """Its hash, as hashlib calls it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def sasl_name(self) -> str:
        """Its name, as ``sasl.mechanism`` gives it."""
        return self.name.replace("_", "-")


def salted_password(
    mechanism: ScramMechanism, password: bytes, *, salt: bytes, iterations: int
) -> bytes:
    """What both sides make of a password; deliberately slow, some 1 ms for 4096 iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """The key with which a client proves that it knows the password."""
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """What a server keeps of the client's key: enough to check a proof, not to make one."""
    return hashlib.new(mechanism.hash_name, client_key(mechanism, salted)).digest()


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """The key with which a server proves that it keeps the user's password."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def client_proof(mechanism: ScramMechanism, salted: bytes, exchange: bytes) -> bytes:
    """The client's proof for an exchange: the messages so far, joined by commas."""
    key = client_key(mechanism, salted)
    signature = hmac.digest(stored_key(mechanism, salted), exchange, mechanism.hash_name)
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def server_signature(mechanism: ScramMechanism, salted: bytes, exchange: bytes) -> bytes:
    """The server's proof for the same exchange."""
    return hmac.digest(server_key(mechanism, salted), exchange, mechanism.hash_name)
