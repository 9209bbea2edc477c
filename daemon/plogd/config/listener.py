"""Parse ``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map``.

Invalid texts raise ValueError with the reason; net/listeners.py opens the ports. Source: Kafka 4.3
SocketServerConfigs, AbstractKafkaConfig.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The protocols in the order of their numbers in requests between brokers."""
SERVED_PROTOCOLS = ("PLAINTEXT", "SSL")

# An IPv6 address contains colons, so it must be in brackets.
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([^\[\]]*)\]|([0-9A-Za-z._%-]*)):([0-9]{1,5})")
# Valid to listen on, but not an address to which a client can connect.
_WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A named address to listen on or to advertise.

    In ``listeners``, an empty host means all interfaces, and port 0 means any free port. In
    ``advertised.listeners``, an empty host means the address to which the client connected, and
    port 0 means the port that was opened.
    """

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return the security protocol for each listener name.

    >>> parse_protocol_map("inside:PLAINTEXT, OUTSIDE:SSL")
    {'INSIDE': 'PLAINTEXT', 'OUTSIDE': 'SSL'}
    """
    protocols: dict[str, str] = {}
    # An empty text would otherwise be an entry without a protocol.
    for entry in text.split(",") if text.strip() else []:
        # Kafka converts the names of listeners to upper case.
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not (name and colon and protocol):
            raise ValueError(f"{entry.strip()!r} does not have the form NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise ValueError(
                f"unknown security protocol {protocol!r}; use one of"
                f" {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in protocols:
            raise ValueError(f"{name} is listed twice")
        protocols[name] = protocol
    return protocols


def parse_listener(text: str, protocols: Mapping[str, str]) -> Listener:
    """Parse one ``NAME://host:port``.

    >>> str(parse_listener("plaintext://[::1]:9092", {"PLAINTEXT": "PLAINTEXT"}))
    'PLAINTEXT://[::1]:9092'
    """
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} does not have the form NAME://host:port (with an IPv6 address in brackets)"
        )
    name, ipv6, host, port = match[1].upper(), match[2], match[3], int(match[4])
    if ipv6 is not None:
        ipaddress.IPv6Address(ipv6)  # Raises ValueError, naming the address.
        host = ipv6
    if port > 65535:  # The pattern accepts up to 99999.
        raise ValueError(f"{text!r}: the port must be at most 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(
            f"listener.security.protocol.map has no entry for listener {name} in {text!r}"
        )
    return Listener(name=name, host=host, port=port, protocol=protocol)


def bound_listeners(
    texts: Collection[str], protocols: Mapping[str, str], skipped_names: Collection[str]
) -> tuple[Listener, ...]:
    """Return the listeners to open, without `skipped_names`; reject conflicting names and ports."""
    skipped = {name.upper() for name in skipped_names}
    # Like Kafka, use PLAINTEXT for controller listeners that are not in the map.
    known = {**dict.fromkeys(skipped, "PLAINTEXT"), **protocols}
    parsed = [parse_listener(text, known) for text in texts]
    listeners = [listener for listener in parsed if listener.name not in skipped]
    if not listeners:
        raise ValueError("does not contain a listener for clients")
    for listener in listeners:
        # Rejected here because SASL is not supported yet, and the port must not be open without the
        # authentication that the operator expects.
        if listener.protocol not in SERVED_PROTOCOLS:
            raise ValueError(
                f"cannot open listener {listener}: security protocol {listener.protocol} is not"
                f" supported; use {' or '.join(SERVED_PROTOCOLS)}"
            )
    _refuse_clashes(listeners)
    return tuple(listeners)


def advertised_listeners(
    texts: Collection[str],
    bound: Collection[Listener],
    protocols: Mapping[str, str],
    skipped_names: Collection[str],
) -> dict[str, Listener]:
    """Return the advertised listeners by name; each must be one of `bound`."""
    skipped = {name.upper() for name in skipped_names}
    known = {**dict.fromkeys(skipped, "PLAINTEXT"), **protocols}
    bound_names = {listener.name for listener in bound}
    advertised: dict[str, Listener] = {}
    for text in texts:
        listener = parse_listener(text, known)
        # Since Kafka 3.9, a file may also advertise controllers, which plog does not open.
        if listener.name in skipped:
            continue
        if listener.name not in bound_names:
            raise ValueError(f"cannot advertise {listener}: listeners does not contain that name")
        if listener.name in advertised:
            raise ValueError(f"{listener.name} is listed twice")
        if listener.host in _WILDCARDS:
            raise ValueError(
                f"cannot advertise {listener}: clients cannot connect to {listener.host}"
            )
        advertised[listener.name] = listener
    return advertised


def _refuse_clashes(listeners: list[Listener]) -> None:
    """Require unique names and ports, except that an IPv4 and an IPv6 address may share both."""
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 2:  # One for each family.
            raise ValueError(f"{name} is listed {names.count(name)} times")
    for i, first in enumerate(listeners):
        for second in listeners[i + 1 :]:
            # KIP-797: an IPv4 and an IPv6 address are separate sockets, so their ports do not
            # conflict.
            both_families = {_family(first.host), _family(second.host)} == {4, 6}
            # Port 0 means any free port, so two listeners may use it.
            same_port = first.port == second.port != 0
            if first.name == second.name and not (same_port and both_families):
                raise ValueError(f"{first.name} is listed twice")
            if same_port and not both_families:
                raise ValueError(f"{first} and {second} use the same port")


def _family(host: str) -> int | None:
    """Return 4 or 6 for an IP address, and None for a host name or an empty host."""
    try:
        return ipaddress.ip_address(host).version
    # A host name can have addresses of both families, so its family is unknown.
    except ValueError:
        return None
