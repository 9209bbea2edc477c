"""The port `Peers` with connections of the client library: one for each broker and lane.

Each lane keeps its requests in order: while its connection is being opened, requests wait in a
queue, and later requests join the queue until it is empty. The client library negotiates versions,
limits the time of each attempt, and waits before it connects again (`Node`). Records in a response
are views of the buffer into which its bytes were copied once.

The addresses come from the controller or from the metadata cache, which know the endpoints of the
inter-broker listener. If the address of a broker changes, its connections are replaced.

`peers_on` builds the port on a reactor. Tests use a network in virtual time. Reactor thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from plog.client.errors import ConnectionFailed
from plog.client.network.api_versions import common_version
from plog.client.network.connection import Connection
from plog.client.network.node import Node
from plog.client.network.ports import Cancelled, Network
from plog.client.network.tls_context import PemSource, Security
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.settings import ClientSettings
from plog.errors import PlogError, RequestTimedOut, UnsupportedVersion
from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage, WireError
from plogd.apis.own_requests import OwnRequests
from plogd.broker import Broker
from plogd.config import BrokerConfig
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, PeerUnavailable, built_message
from plogd.ports import Later, Ports, Timer, failed

Address: TypeAlias = tuple[str, int]
AddressOf: TypeAlias = Callable[[int], Address | None]
"""Returns the host and port of a broker's inter-broker listener, or None if it is unknown."""


class PeerConnections:
    """The `Peers` of one broker.

    Args:
        own: handles the requests of this broker to itself.
        network: opens the connections.
        security: the TLS configuration of the inter-broker listener; None without TLS.
        on_bug: called with exceptions of code that receives a response.
    """

    def __init__(
        self,
        own_id: int,
        own: OwnRequests,
        address_of: AddressOf,
        network: Network,
        ports: Ports,
        *,
        security: Security | None = None,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._own_id = own_id
        self._own = own
        self._address_of = address_of
        self._network = network
        self._security = security
        self._on_bug = on_bug
        self._ports = ports
        self._settings = ClientSettings(
            security_protocol="PLAINTEXT" if security is None else "SSL",
            request_timeout_ms=int(REQUEST_TIMEOUT_MS),
        )
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._is_closed = False

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        """Send a request; see `Peers.ask`."""
        if self._is_closed:
            return failed(PeerUnavailable("this broker is stopping"))
        if broker_id == self._own_id:
            return self._ask_own(request, timeout_ms)
        address = self._address_of(broker_id)
        if address is None:
            return failed(PeerUnavailable(f"broker {broker_id} is not running"))
        found = self._lanes.get((broker_id, lane))
        if found is None or found.address != address:
            if found is not None:
                found.close(f"broker {broker_id} has another address now")
            found = self._lanes[broker_id, lane] = self._open(broker_id, address)
        return found.ask(request, timeout_ms)

    def _ask_own(self, request: PeerRequest, timeout_ms: float) -> Later[Any]:
        try:
            message, version = built_message(request, self._own_version_of)
        except (UnsupportedVersion, WireError) as error:
            return failed(error)
        return self._own.ask(message, version, timeout_ms)

    def _own_version_of(self, request: Any, *, by_name: bool = True) -> int:
        return common_version(request, self._own.versions, "this broker itself", by_name=by_name)

    def _open(self, broker_id: int, address: Address) -> _Lane:
        node = Node(self._network, self._settings, self._security, broker_id, *address)
        return _Lane(node, address, self._network, self._ports, self._on_bug)

    def close(self) -> None:
        """Close all connections; see `Peers.close`."""
        self._is_closed = True
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close("this broker is stopping")


class _Asked:
    """A request without a response."""

    __slots__ = ("deadline_ms", "later", "request", "timer")

    def __init__(self, request: PeerRequest, deadline_ms: float) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.later: Later[Any] = Later()
        """Replaced if the request has to wait for the connection."""
        self.timer: Timer | None = None
        """Fails the request if there is no connection in time; None once the request is sent."""

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Lane:
    """The connection of one lane to one broker, and the requests that wait for it."""

    def __init__(
        self,
        node: Node,
        address: Address,
        network: Network,
        ports: Ports,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self.address = address
        self._node = node
        self._network = network
        self._clock, self._timers = ports.clock, ports.timers
        self._turn, self._report = ports.turn, ports.report
        self._on_bug = on_bug
        self._waiting: deque[_Asked] = deque()
        self._is_connecting = False
        self._is_unreachable = False
        """Whether the last attempt to connect has failed, which is reported once."""
        self._closed_because: str | None = None

    # -- requests -----------------------------------------------------------------------------

    def ask(self, request: PeerRequest, timeout_ms: float) -> Later[Any]:
        asked = _Asked(request, self._clock.monotonic_ms() + timeout_ms)
        # A request must not overtake those that still wait for the connection.
        connection = None if self._waiting or self._is_connecting else self._node.use()
        if connection is not None:
            self._send(connection, asked)
            return asked.later
        # Only now, because most requests find an open connection.
        asked.later = Later(lambda: self._withdraw(asked))
        asked.timer = self._timers.call_later(timeout_ms, lambda: self._expired(asked))
        self._waiting.append(asked)
        if not self._is_connecting:
            self._is_connecting = True
            self._network.spawn(self._connect(), f"connecting to broker {self._node.id}")
        return asked.later

    def _withdraw(self, asked: _Asked) -> None:
        """Remove a request that its caller has cancelled, if it has not been sent yet."""
        asked.stop_timer()
        if asked in self._waiting:
            self._waiting.remove(asked)

    def _expired(self, asked: _Asked) -> None:
        self._withdraw(asked)
        host, port = self.address
        error = RequestTimedOut(f"cannot connect to {host}:{port} in time")
        self._finish(asked, error)

    @property
    def _where(self) -> str:
        host, port = self.address
        return f"broker {self._node.id} at {host}:{port}"

    async def _connect(self) -> None:
        """Open the connection and send the waiting requests, until no request waits."""
        try:
            while self._waiting:
                try:
                    connection = await self._node.connected()
                except Cancelled:
                    raise
                except (PlogError, WireError) as error:
                    self._cannot_connect(error)
                    continue
                if self._is_unreachable:
                    self._is_unreachable = False
                    self._report("connected to {broker} again", broker=self._where)
                # If a request breaks the connection, the loop opens it again for the others.
                while self._waiting and connection.is_open:
                    asked = self._waiting.popleft()
                    asked.stop_timer()
                    self._send(connection, asked)
        finally:
            self._is_connecting = False

    def _cannot_connect(self, error: Exception) -> None:
        if not self._is_unreachable and self._closed_because is None:
            self._is_unreachable = True
            self._report(
                "cannot reach broker {broker}: {error}; retrying when there are requests for it",
                broker=self._node.id,
                error=str(error),
                level="warn",
            )
        # It names the address, and callers name the broker.
        self._fail_waiting(str(error))

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            asked.stop_timer()
            self._finish(asked, PeerUnavailable(why))

    def _send(self, connection: Connection, asked: _Asked) -> None:
        left_s = (asked.deadline_ms - self._clock.monotonic_ms()) / 1000
        # Not sent at all: a timeout of the connection would also fail the other requests.
        if left_s <= 0:
            self._expired(asked)
            return
        try:
            message, version = built_message(asked.request, connection.version_of)
            answer = connection.ask(
                message,
                API_BY_KEY[message.api_key].response,
                version=version,
                timeout_s=left_s,
            )
        except (PlogError, WireError) as error:
            self._finish(asked, error)
            return
        self._network.spawn(self._await(answer, asked), f"a request to broker {self._node.id}")

    async def _await(self, answer: Awaitable[ApiMessage], asked: _Asked) -> None:
        outcome: ApiMessage | Exception
        try:
            outcome = await answer
        except (PlogError, WireError) as error:
            outcome = error
        self._finish(asked, outcome)

    def _finish(self, asked: _Asked, outcome: ApiMessage | Exception) -> None:
        """Complete a request; what its caller does then belongs to one turn."""
        if isinstance(outcome, ConnectionFailed):
            outcome = PeerUnavailable(self._closed_because or str(outcome))
        try:
            with self._turn:
                if isinstance(outcome, Exception):
                    asked.later.fail(outcome)
                else:
                    asked.later.succeed(outcome)
        except Exception as error:
            self._on_bug(f"a response from {self._where}", error)

    def close(self, why: str) -> None:
        """Close the connection; its requests fail."""
        self._closed_because = why
        self._fail_waiting(why)
        self._node.close()


# -- on a reactor ------------------------------------------------------------------------------


def peers_on(reactor: Any, broker: Broker, address_of: AddressOf) -> PeerConnections:
    """Return the `Peers` of `broker` on this reactor, with the TLS of the inter-broker listener."""
    config = broker.config
    security = peer_security(config)
    if security is not None:
        # Otherwise, it would be imported with the first connection, and the files of a running
        # broker may have been replaced by an upgrade.
        import plog.client.network.twisted_tls  # noqa: F401
    return PeerConnections(
        config.node_id,
        OwnRequests(broker),
        address_of,
        TwistedNetwork(reactor, client_id=f"broker-{config.node_id}"),
        broker.ports,
        security=security,
        on_bug=broker.report_bug,
    )


def peer_security(config: BrokerConfig) -> Security | None:
    """Return how to connect to the inter-broker listener of other brokers; None without TLS.

    This broker presents its own certificate as a client. Without a truststore, the system's CAs are
    trusted.
    """
    listener = config.inter_broker_listener()
    if listener is None or listener.protocol != "SSL":
        return None
    tls = config.tls_of(listener)

    def source(name: str, value: str | None, *, is_path: bool = False) -> PemSource | None:
        setting = config.name_for(listener, name)
        if not value:
            return None
        return PemSource(setting=setting, **{"path" if is_path else "text": value})

    trusted = source("ssl.truststore.certificates", tls.ssl_truststore_certificates) or source(
        "ssl.truststore.location", tls.ssl_truststore_location, is_path=True
    )
    stored = source("ssl.keystore.location", tls.ssl_keystore_location, is_path=True)
    return Security(
        trusted=trusted,
        key=source("ssl.keystore.key", tls.ssl_keystore_key) or stored,
        chain=source("ssl.keystore.certificate.chain", tls.ssl_keystore_certificate_chain)
        or stored,
        key_password=tls.ssl_key_password,
        versions=tls.ssl_enabled_protocols,
        cipher_suites=tls.ssl_cipher_suites,
    )
