"""Warn about advertised listeners that clients cannot reach.

A client connects, requests the cluster's metadata, and then connects to the addresses in the
response. If it cannot reach an address, it retries silently. The broker therefore looks for two
signs. At startup, it checks whether this host can resolve the advertised names. Later, it checks
whether a client that received a suspicious address sends anything other than metadata requests.
Neither sign is proof: clients may resolve names that this host cannot, and a container's port may
be forwarded from localhost.

Called by service.py; reactor thread only. Source: problems related to KIP-103 and KIP-302, and
common questions about Kafka in containers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from twisted.logger import Logger

from plogd.config import BrokerConfig, Listener
from plogd.connection_context import ConnectionContext
from plogd.net.connections import Connections
from plogd.ports import Later

log = Logger()

WAIT_MS = 10_000.0
"""Time within which a client must send another request; otherwise, the address is reported."""
HOSTS_MAX = 1000
"""Maximum number of hosts in each set, so that a large number of clients cannot exhaust memory."""
_WILDCARDS = ("", "0.0.0.0", "::")
_REMEDY = "set advertised.listeners to an address that clients can reach"


class AdvertisedCheck:
    """Compares the addresses that clients receive with the requests that they send afterward.

    Args:
        resolve: resolves a host name; fails with OSError if the name is unknown.
    """

    def __init__(
        self, config: BrokerConfig, shared: Connections, *, resolve: Callable[[str], Later[object]]
    ) -> None:
        self._advertised = config.advertised_by_name()
        self._bound = {listener.name: listener for listener in config.bound_listeners()}
        self._shared = shared
        self._resolve = resolve
        self._unresolvable: set[str] = set()
        self._waiting: dict[str, None] = {}
        self._working: dict[str, None] = {}

    def start(self) -> None:
        """Check the advertised listeners; name resolution continues in the background."""
        for listener in self._advertised.values():
            if _is_name(listener.host):
                self._resolve_later(listener)
            elif _is_loopback(listener.host) and not self._listens_on_loopback(listener):
                log.info(
                    "advertised.listeners contains {listener}: clients on other hosts cannot"
                    " connect to it, although {bound} accepts them",
                    listener=str(listener),
                    bound=str(self._bound[listener.name]),
                )

    def record_advertised(self, connection: ConnectionContext, host: str, port: int) -> None:
        """Record that a client received this address in a metadata response."""
        # Hosts are watched, not connections: an address is reachable by all clients of a host or by
        # none.
        client = connection.client_address[0]
        if client in self._waiting or client in self._working:
            return
        why = self._suspicion(connection, host)
        if why is None or len(self._waiting) >= HOSTS_MAX:
            return
        self._waiting[client] = None
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        line = (
            f"received the advertised address {address} from listener {connection.listener_name}"
            f" but has not sent any other requests since: {why}; {_REMEDY}"
        )
        self._shared.timers.call_later(WAIT_MS, lambda: self._waited(client, line))

    def record_work(self, connection: ConnectionContext) -> None:
        """Record that a client sends requests other than metadata requests."""
        client = connection.client_address[0]
        self._waiting.pop(client, None)
        if len(self._working) >= HOSTS_MAX:
            # Forget the host that was added first. At worst, it is checked and reported once more.
            del self._working[next(iter(self._working))]
        self._working[client] = None

    def _waited(self, client: str, line: str) -> None:
        if client in self._waiting:
            del self._waiting[client]
            self._shared.report(client, "advertised", line)

    def _suspicion(self, connection: ConnectionContext, host: str) -> str | None:
        if host in self._unresolvable:
            return (
                f"this host cannot resolve {host}, so the client may not be able to resolve it"
                " either"
            )
        # The following reasons apply only to clients on other hosts: every address of this host
        # works for a local client.
        client, ours = connection.client_address[0], connection.local_address[0]
        if client == ours or _is_loopback(client):
            return None
        if _is_loopback(host):
            return f"on another host, {host} refers to that host itself"
        if _is_name(host) and "." not in host:
            return (
                f"{host} does not include a domain and, like a container name, may be known only"
                " on this host"
            )
        return None

    def _listens_on_loopback(self, advertised: Listener) -> bool:
        host = self._bound[advertised.name].host
        return host not in _WILDCARDS and _is_loopback(host)

    def _resolve_later(self, listener: Listener) -> None:
        host = listener.host

        def failed(error: Exception) -> None:
            if not isinstance(error, OSError):
                return  # The broker is stopping.
            self._unresolvable.add(host)
            log.warn(
                "advertised.listeners contains {listener}, but this host cannot resolve {host}"
                " ({error}): {remedy}",
                listener=str(listener),
                host=host,
                error=error.strerror or str(error),
                remedy=_REMEDY,
            )

        self._resolve(host).then(lambda _: None, failed)


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # Every host resolves localhost, but to itself: `_is_loopback` recognizes it.
        return bool(host) and host != "localhost"
    return False


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
