"""``--add-scram`` of ``plog storage format``: create users before a broker's first startup.

Each option becomes the record that the broker would write if ``plog configs`` set the same
credential, and has the same limits. Error messages never contain passwords or salted passwords.
Source: Kafka 4.3 ScramParser.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence

from plog.cli.options import UsageError
from plog.errors import KafkaError
from plog.scram import ScramMechanism, salted_password
from plog.wire.internal.metadata_records import UserScramCredentialRecord
from plogd.security.scram import MIN_ITERATIONS, check_user, credential_of

_MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
_PARTS = ("name", "iterations", "salt", "password", "saltedpassword")
_FORM = "SCRAM-SHA-256=[name=USER,password=PASSWORD]"
_SALT_BYTES = 26
"""The salt size that Kafka's tool uses."""


def scram_records(
    arguments: Sequence[str], random_bytes: Callable[[int], bytes]
) -> list[UserScramCredentialRecord]:
    """Return the credentials from all options.

    Raises UsageError for an invalid option, or if a user has two credentials for one mechanism.
    """
    records: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for text in arguments:
        record = _record(text, random_bytes)
        key = record.name, record.mechanism
        if key in records:
            raise UsageError(
                f"--add-scram: {record.name!r} has two credentials for the same mechanism; specify"
                " only one"
            )
        records[key] = record
    return list(records.values())


def _record(text: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    try:
        # Bytes in arguments that are not UTF-8 become surrogates, which a record cannot contain.
        text.encode()
    except UnicodeEncodeError:
        # `from None`, because the original exception contains the argument, and thus the password.
        raise UsageError("--add-scram: the value is not valid UTF-8") from None
    name, _, rest = text.strip().partition("=")
    mechanism = _MECHANISMS.get(name)
    if mechanism is None:
        raise UsageError(f"--add-scram: start with {' or '.join(_MECHANISMS)}, as in {_FORM}")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise UsageError(f"--add-scram: put the values after {name}= in brackets, as in {_FORM}")
    parts = _parts(rest[1:-1])
    salt = _decoded(parts, "salt")
    salted = _decoded(parts, "saltedpassword")
    iterations = parts.get("iterations", str(MIN_ITERATIONS))
    # int() would also accept signs, spaces, underscores and the digits of other scripts.
    if not (iterations.isascii() and iterations.isdecimal()):
        raise UsageError(f"--add-scram: iterations={iterations} is not a whole number")
    if "name" not in parts:
        raise UsageError(f"--add-scram: the user name is missing; use the format {_FORM}")
    if ("password" in parts) == ("saltedpassword" in parts):
        raise UsageError("--add-scram: specify either password or saltedpassword")
    # A salted password is useless with any salt but its own.
    if salted is not None and salt is None:
        raise UsageError("--add-scram: saltedpassword requires salt")
    # Random, so that equal passwords do not have equal keys (RFC 5802).
    salt = random_bytes(_SALT_BYTES) if salt is None else salt
    try:
        check_user(parts["name"])
        # Check the limits before hashing, whose cost grows with the number of iterations.
        credential_of(mechanism, salt=salt, salted_password=b"-", iterations=int(iterations))
        if salted is None:
            password = parts["password"].encode()
            salted = salted_password(mechanism, password, salt=salt, iterations=int(iterations))
        made = credential_of(
            mechanism, salt=salt, salted_password=salted, iterations=int(iterations)
        )
    except KafkaError as error:
        raise UsageError(f"--add-scram: {error.message}") from None
    return UserScramCredentialRecord(
        name=parts["name"],
        mechanism=mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator or name not in _PARTS:
            raise UsageError(
                "--add-scram: the brackets must contain NAME=VALUE pairs, where NAME is one of"
                f" {', '.join(_PARTS)}"
            )
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        parts[name] = value
    return parts


def _decoded(parts: dict[str, str], name: str) -> bytes | None:
    if name not in parts:
        return None
    try:
        # Without `validate`, invalid characters are ignored.
        return base64.b64decode(parts[name], validate=True)
    except binascii.Error:
        raise UsageError(f"--add-scram: {name} is not valid base64") from None
