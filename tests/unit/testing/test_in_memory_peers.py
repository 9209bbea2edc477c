"""The `Peers` of brokers in one process."""

from __future__ import annotations

from tests.helpers.peers.conformance import PeersConformance
from tests.helpers.peers.peer_site import InMemorySite


class TestInMemoryPeers(PeersConformance):
    """`InMemoryPeers` passes the tests of `Peers`."""

    make_site = InMemorySite
