"""The znodes of settings, quotas and SCRAM credentials: a JSON object of texts.

A user's znode contains quotas and credentials, which are separate keys in the metadata store, so a
change of one key keeps the others. Names that plog does not know are kept, too. Source: Kafka 3.9
ConfigEntityZNode, ScramCredentialUtils, ZkAdminManager.alterClientQuotas.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from plog.scram import ScramMechanism
from plogd.metadata.zookeeper.znode_json import decode_object, encode_json, merged, object_of
from plogd.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from plogd.security.scram import ScramCredential

# The types of Kafka's QuotaConfig: the values of the first three are written as whole numbers.
_WHOLE_NUMBERS: Final = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, "connection_creation_rate"}
QUOTA_NAMES: Final = frozenset({*_WHOLE_NUMBERS, "request_percentage", "controller_mutation_rate"})
_SCRAM_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


def decode_config(data: bytes) -> dict[str, str]:
    """Return the settings in a znode; an empty znode has none. Raises ValueError."""
    if not data:
        return {}
    return {name: _text(value, name) for name, value in _config_of(data).items()}


def _config_of(data: bytes) -> dict[str, Any]:
    return object_of(decode_object(data), "config")


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    # Kafka writes texts, but operators who edit a znode by hand write numbers.
    if isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise ValueError(f"the value of {name} is not a text")


def encode_config(config: Mapping[str, str], old: bytes | None = None) -> bytes:
    """Return the contents of a znode with these settings; `old` are its present contents."""
    return encode_json(merged(old, {"version": 1, "config": dict(config)}))


# -- quotas ----------------------------------------------------------------------------------------


def quotas_of(config: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas in the settings of a user, client id or IP address. Raises ValueError."""
    quotas = {name: float(config[name]) for name in config if name in QUOTA_NAMES}
    if not all(map(math.isfinite, quotas.values())):
        raise ValueError("a quota is not a finite number")
    return quotas


def with_quotas(config: Mapping[str, str], quotas: Mapping[str, float]) -> dict[str, str]:
    """Return the settings with other quotas."""
    kept = {name: value for name, value in config.items() if name not in QUOTA_NAMES}
    return {**kept, **{name: _quota_text(name, value) for name, value in quotas.items()}}


def _quota_text(name: str, value: float) -> str:
    """Return a number as Java writes it.

    >>> _quota_text("producer_byte_rate", 1024.0), _quota_text("request_percentage", 50)
    ('1024', '50.0')
    >>> _quota_text("request_percentage", 2.5e7), _quota_text("request_percentage", 0.0001)
    ('2.5E7', '1.0E-4')
    """
    if name in _WHOLE_NUMBERS and float(value).is_integer():
        return str(int(value))
    # The limits of Java's Double.toString.
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    number = Decimal(repr(float(value))).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


# -- SCRAM -----------------------------------------------------------------------------------------


def credentials_of(config: Mapping[str, str]) -> Iterator[tuple[ScramMechanism, ScramCredential]]:
    """Yield the SCRAM credentials in the settings of a user. Raises ValueError without secrets."""
    for mechanism in ScramMechanism:
        if mechanism.sasl_name in config:
            yield mechanism, _credential_of(config[mechanism.sasl_name], mechanism.sasl_name)


def _credential_of(text: str, name: str) -> ScramCredential:
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        if sorted(parts) != sorted(_SCRAM_FIELDS):
            raise ValueError
        return ScramCredential(
            salt=base64.b64decode(parts["salt"], validate=True),
            stored_key=base64.b64decode(parts["stored_key"], validate=True),
            server_key=base64.b64decode(parts["server_key"], validate=True),
            iterations=int(parts["iterations"]),
        )
    except (ValueError, binascii.Error):
        # `from None`, because the original error may contain the credential.
        raise ValueError(f"the credential for {name} is damaged") from None


def with_credential(
    config: Mapping[str, str], mechanism: int, credential: ScramCredential | None
) -> dict[str, str]:
    """Return the settings of a user with another credential, or without one."""
    name = ScramMechanism(mechanism).sasl_name
    kept = {key: value for key, value in config.items() if key != name}
    if credential is None:
        return kept
    values = (credential.salt, credential.stored_key, credential.server_key)
    texts = [*(base64.b64encode(x).decode() for x in values), str(credential.iterations)]
    fields = zip(_SCRAM_FIELDS, texts, strict=True)
    return {**kept, name: ",".join(f"{field}={text}" for field, text in fields)}
