"""SCRAM credentials: their values and validation.

A client sends the salted password. The server side of SASL/SCRAM is not implemented yet
(docs/security.md); plog/scram.py computes the keys. Source: RFC 5802; Kafka 4.0
ScramControlManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from plog.errors import UnacceptableCredential, UnsupportedSaslMechanism
from plog.scram import ScramMechanism, server_key, stored_key

# The limits of Kafka's ScramMechanism and ScramControlManager.
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
MAX_USER_CHARACTERS: Final = 1_000
MAX_SALT_BYTES: Final = 1_000
"""plog's own limit; Kafka does not limit the salt. Clients send a salt of about twenty bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The stored form of a password; `repr` omits its secrets."""

    # A repr can end up in a log or a traceback, and these values allow offline attacks.
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def mechanism_of(number: int) -> ScramMechanism:
    """Return the mechanism with this number. Raises UnsupportedSaslMechanism."""
    try:
        return ScramMechanism(number)
    except ValueError:
        raise UnsupportedSaslMechanism(f"unknown SCRAM mechanism {number}") from None


def check_user(name: str) -> None:
    """Raise UnacceptableCredential if the user name is invalid."""
    if not name:
        raise UnacceptableCredential("the user name is empty")
    if len(name) > MAX_USER_CHARACTERS:
        raise UnacceptableCredential(
            f"the user name has {len(name)} characters; at most {MAX_USER_CHARACTERS} are allowed"
        )


def credential_of(
    mechanism: ScramMechanism, *, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """Return the credential to store for a salted password. Raises UnacceptableCredential."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        few_or_many = "few" if iterations < MIN_ITERATIONS else "many"
        raise UnacceptableCredential(
            f"{iterations} iterations are too {few_or_many}; use {MIN_ITERATIONS} to"
            f" {MAX_ITERATIONS}"
        )
    if not salted_password:
        raise UnacceptableCredential("the salted password is empty")
    if len(salt) > MAX_SALT_BYTES:
        raise UnacceptableCredential(
            f"the salt is {len(salt)} bytes long; at most {MAX_SALT_BYTES} are allowed"
        )
    # These two keys suffice to verify a client, but not to authenticate as that client.
    return ScramCredential(
        salt=salt,
        stored_key=stored_key(mechanism, salted_password),
        server_key=server_key(mechanism, salted_password),
        iterations=iterations,
    )
