"""Reading ``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map``.

Pure: texts in, `Listener` values out; a text that breaks a rule raises ValueError with the reason.
Opening the ports is net/listeners.py's work. Rules: Kafka 4.3 SocketServerConfigs and
AbstractKafkaConfig. SASL is not served yet, so a listener that asks for it is refused here, before
anything listens without the protection its owner expects.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT", "SSL")

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([^\[\]]*)\]|([0-9A-Za-z._%-]*)):([0-9]{1,5})")
_WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A named address, to listen on or to advertise.

    In ``listeners`` no host means every interface and port 0 a free one. Advertised, they stand for
    the address the client itself has used and for the port that was opened.
    """

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Security protocol by listener name.

    >>> parse_protocol_map("inside:PLAINTEXT, OUTSIDE:SSL")
    {'INSIDE': 'PLAINTEXT', 'OUTSIDE': 'SSL'}
    """
    protocols: dict[str, str] = {}
    for entry in text.split(",") if text.strip() else []:
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not (name and colon and protocol):
            raise ValueError(f"{entry.strip()!r} is not of the form NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"{protocol!r} is none of {', '.join(SECURITY_PROTOCOLS)}")
        if name in protocols:
            raise ValueError(f"{name} is listed twice")
        protocols[name] = protocol
    return protocols


def parse_listener(text: str, protocols: Mapping[str, str]) -> Listener:
    """One ``NAME://host:port``.

    >>> str(parse_listener("plaintext://[::1]:9092", {"PLAINTEXT": "PLAINTEXT"}))
    'PLAINTEXT://[::1]:9092'
    """
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not of the form NAME://host:port (an IPv6 address in brackets)"
        )
    name, ipv6, host, port = match[1].upper(), match[2], match[3], int(match[4])
    if ipv6 is not None:
        ipaddress.IPv6Address(ipv6)  # Raises ValueError, naming the address.
        host = ipv6
    if port > 65535:
        raise ValueError(f"{text!r}: a port is at most 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(
            f"listener.security.protocol.map has no entry for the listener {name} of {text!r}"
        )
    return Listener(name=name, host=host, port=port, protocol=protocol)


def bound_listeners(
    texts: Collection[str], protocols: Mapping[str, str], skipped_names: Collection[str]
) -> tuple[Listener, ...]:
    """The listeners to open: those not named in `skipped_names`, checked against one another."""
    skipped = {name.upper() for name in skipped_names}
    # Kafka takes PLAINTEXT for a controller's listener that the map does not name.
    known = {**dict.fromkeys(skipped, "PLAINTEXT"), **protocols}
    parsed = [parse_listener(text, known) for text in texts]
    listeners = [listener for listener in parsed if listener.name not in skipped]
    if not listeners:
        raise ValueError("no listener is left for clients")
    for listener in listeners:
        if listener.protocol not in SERVED_PROTOCOLS:
            raise ValueError(
                f"{listener} asks for {listener.protocol}: SASL comes in a later version, only"
                f" {' and '.join(SERVED_PROTOCOLS)} are served now"
            )
    _refuse_clashes(listeners)
    return tuple(listeners)


def advertised_listeners(
    texts: Collection[str],
    bound: Collection[Listener],
    protocols: Mapping[str, str],
    skipped_names: Collection[str],
) -> dict[str, Listener]:
    """The advertised listeners by name; each has to be one that is opened."""
    skipped = {name.upper() for name in skipped_names}
    known = {**dict.fromkeys(skipped, "PLAINTEXT"), **protocols}
    bound_names = {listener.name for listener in bound}
    advertised: dict[str, Listener] = {}
    for text in texts:
        listener = parse_listener(text, known)
        if listener.name in skipped:
            continue
        if listener.name not in bound_names:
            raise ValueError(f"{listener} has no counterpart of that name in listeners")
        if listener.name in advertised:
            raise ValueError(f"{listener.name} is listed twice")
        if listener.host in _WILDCARDS:
            raise ValueError(f"{listener}: no client can connect to {listener.host}")
        advertised[listener.name] = listener
    return advertised


def _refuse_clashes(listeners: list[Listener]) -> None:
    """Names are unique; so are ports, except for one IPv4 and one IPv6 address on the same port."""
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 2:
            raise ValueError(f"{name} is listed {names.count(name)} times")
    for i, first in enumerate(listeners):
        for second in listeners[i + 1 :]:
            both_families = {_family(first.host), _family(second.host)} == {4, 6}
            same_port = first.port == second.port != 0
            if first.name == second.name and not (same_port and both_families):
                raise ValueError(f"{first.name} is listed twice")
            if same_port and not both_families:
                raise ValueError(f"{first} and {second} want the same port")


def _family(host: str) -> int | None:
    """4 or 6 for an address, None for a name or no host."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None
