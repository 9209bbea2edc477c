"""SCRAM credentials: what of a password is kept, and which ones are taken.

A client sends the salted password; kept are two keys made of it, which are enough to check a log-in
and not enough to make one. The server's side of SASL/SCRAM itself does not exist yet
(docs/security.md), the mathematics is plog/scram.py's. Source: RFC 5802; Kafka 4.0
ScramControlManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from plog.errors import UnacceptableCredential, UnsupportedSaslMechanism
from plog.scram import ScramMechanism, server_key, stored_key

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
MAX_USER_CHARACTERS: Final = 1_000
MAX_SALT_BYTES: Final = 1_000
"""Ours: Kafka has no bounds, and clients send a salt of some twenty bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What is kept of a password; its secrets are in no text form."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def mechanism_of(number: int) -> ScramMechanism:
    """The mechanism of this number. Raises UnsupportedSaslMechanism."""
    try:
        return ScramMechanism(number)
    except ValueError:
        raise UnsupportedSaslMechanism(f"there is no SCRAM mechanism {number}") from None


def check_user(name: str) -> None:
    """Raise UnacceptableCredential if no user can have this name."""
    if not name:
        raise UnacceptableCredential("the name of the user is empty")
    if len(name) > MAX_USER_CHARACTERS:
        raise UnacceptableCredential(
            f"a name of {len(name)} characters is longer than {MAX_USER_CHARACTERS}"
        )


def credential_of(
    mechanism: ScramMechanism, *, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """What to keep of a salted password. Raises UnacceptableCredential."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        few_or_many = "few" if iterations < MIN_ITERATIONS else "many"
        raise UnacceptableCredential(
            f"{iterations} iterations are too {few_or_many}: take {MIN_ITERATIONS} to"
            f" {MAX_ITERATIONS}"
        )
    if not salted_password:
        raise UnacceptableCredential("the salted password is empty")
    if len(salt) > MAX_SALT_BYTES:
        raise UnacceptableCredential(f"a salt of {len(salt)} bytes is longer than {MAX_SALT_BYTES}")
    return ScramCredential(
        salt=salt,
        stored_key=stored_key(mechanism, salted_password),
        server_key=server_key(mechanism, salted_password),
        iterations=iterations,
    )
