"""The addresses at which clients and other brokers reach this broker.

A client gets the address through which it has connected, unless advertised.listeners has another
one for its listener. Other brokers get the endpoints of the registration. Pure; broker.py uses it.
Source: Kafka 3.9 KafkaConfig.effectiveAdvertisedBrokerListeners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plogd.config import BrokerConfig, Listener
from plogd.metadata.store import Endpoint

_WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::")


class AdvertisedAddresses:
    """The addresses of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._advertised = config.advertised_by_name()

    def address_for(self, listener_name: str, local_address: tuple[str, int]) -> tuple[str, int]:
        """Return the host and port for a client that has connected to `local_address`."""
        # The default is the address to which the client has connected, because it is known to work.
        local_host, local_port = local_address
        advertised = self._advertised.get(listener_name)
        if advertised is not None:
            return advertised.host or local_host, advertised.port or local_port
        # A dual-stack socket reports IPv4 clients' addresses in their IPv6 form.
        return local_host.removeprefix("::ffff:"), local_port

    def endpoints(self, bound: Sequence[Listener], host_name: str) -> tuple[Endpoint, ...]:
        """Return the endpoints of the open listeners `bound`, for the registration.

        `host_name` replaces the host of a listener on all addresses.
        """
        return tuple(self._endpoint(listener, host_name) for listener in bound)

    def _endpoint(self, listener: Listener, host_name: str) -> Endpoint:
        # As in Kafka, clients of other brokers get this address.
        advertised = self._advertised.get(listener.name, listener)
        host = advertised.host or listener.host
        return Endpoint(
            name=listener.name,
            host=host_name or host if host in _WILDCARD_HOSTS else host,
            port=advertised.port or listener.port,
            security_protocol=listener.protocol,
        )
