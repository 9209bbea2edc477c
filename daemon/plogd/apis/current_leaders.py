"""The current leaders that Produce and Fetch responses name, with their addresses (KIP-951).

A client that has sent a request to the wrong broker learns the leader from the error response, and
does not have to wait for new metadata. The addresses are those of the client's listener.
"""

from __future__ import annotations

from plog.errors import ErrorCode
from plogd.apis.listener_view import ListenerView, Node
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.metadata.cache import NO_LEADER
from plogd.replica.partition import NO_EPOCH

OF_INTEREST = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors after which a response names the leader."""
_UNKNOWN = (NO_LEADER, NO_EPOCH)


class CurrentLeaders:
    """The leaders in one response."""

    __slots__ = ("_broker", "_context", "_nodes", "_view")

    def __init__(self, context: RequestContext, broker: Broker) -> None:
        self._context = context
        self._broker = broker
        self._view: ListenerView | None = None
        self._nodes: dict[int, Node] = {}

    def after(self, error_code: int, topic: str, number: int) -> tuple[int, int]:
        """Return a partition's leader and its epoch, both -1 if unknown, and note its address."""
        leader, epoch = self._known(topic, number)
        own_id = self._broker.config.node_id
        # Other brokers may not know yet that this one does not lead the partition any more.
        is_denied = error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and leader == own_id
        if leader == NO_LEADER or is_denied:
            return _UNKNOWN
        if leader not in self._nodes:
            if self._view is None:
                self._view = ListenerView(self._context.connection, self._broker)
            node = self._view.node(leader)
            if node is not None:
                self._nodes[leader] = node
        return leader, epoch

    def _known(self, topic: str, number: int) -> tuple[int, int]:
        hosted = self._broker.replica_manager.topics.partitions.get((topic, number))
        if hosted is not None:
            return hosted.leader, hosted.leader_epoch
        known = self._broker.cache.topic(topic)
        if known is None or not 0 <= number < len(known.partitions):
            return _UNKNOWN
        state = known.partitions[number]
        return state.leader, state.leader_epoch

    @property
    def nodes(self) -> list[Node]:
        """The addresses of the leaders that clients of the listener can reach."""
        return list(self._nodes.values())
