"""The port through which a broker sends requests to other brokers of its cluster.

The replicas, the controller and the coordinators ask other brokers through `Peers`. The shell
implements it with connections of the client library (net/peer_connections.py), and
testing/peer_network.py with brokers in the same process, in virtual time.

Each pair of a broker and a lane has its own connection. A lane is a purpose, for example "control"
or "fetch": requests of one lane reach the broker in the order of the calls, and its responses
arrive in the same order, so a request that waits at the broker delays only its own lane. After an
error, the broker may have processed the request; requests that were asked later in the same lane
can fail with it, but no requests to other brokers. The next request connects again, after a backoff
that grows with each failed attempt.

Source: Kafka 3.9 ControllerChannelManager, BrokerBlockingSender, NodeToControllerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from plog.errors import ErrorCode, KafkaError
from plog.wire.schema import ApiMessage
from plogd.ports import Later

REQUEST_TIMEOUT_MS: Final = 30_000.0
"""The default of Kafka's request.timeout.ms, controller.socket.timeout.ms and
replica.socket.timeout.ms."""


class PeerUnavailable(KafkaError):
    """The broker cannot be reached, or the connection to it was lost; a retry may succeed."""

    code = ErrorCode.NETWORK_EXCEPTION


@dataclass(frozen=True, slots=True)
class VersionedRequest:
    """A request that depends on its version; `build` makes it when the version is known.

    A plain message is sent in the highest version that identifies topics by name. A versioned
    request may also use later versions, which contain only topic ids.
    """

    request_type: type[ApiMessage]
    build: Callable[[int], ApiMessage]


PeerRequest: TypeAlias = ApiMessage | VersionedRequest


def built_message(request: PeerRequest, version_of: Callable[..., int]) -> tuple[ApiMessage, int]:
    """Return the message and its version.

    `version_of` takes a message or its class, and `by_name`, which is False if versions that
    contain only topic ids may be used. Raises UnsupportedVersion.
    """
    if isinstance(request, VersionedRequest):
        version = version_of(request.request_type, by_name=False)
        return request.build(version), version
    return request, version_of(request)


class Peers(Protocol):
    """Sends requests to the brokers of the cluster, including this broker itself."""

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        """Send a request, and return its response, an `ApiMessage`.

        Its version is the highest that both brokers support. A request to this broker itself is a
        direct call, which does not use a lane. Cancelling the Later drops the response; a request
        that has not been sent yet is not sent.

        The Later fails with PeerUnavailable; with RequestTimedOut if there is no response within
        `timeout_ms`, which includes the time for connecting; and with UnsupportedVersion if the
        brokers do not have a version in common.
        """
        ...

    def close(self) -> None:
        """Close all connections; pending and later requests fail with PeerUnavailable."""
        ...
