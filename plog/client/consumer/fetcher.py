"""The fetcher: it runs one loop per broker, with one fetch in flight per loop.

A fetch contains all partitions that may currently be fetched from the broker (fetch_plan.py). The
broker waits up to fetch.max.wait.ms for data. Without partitions to fetch, the loop sleeps until it
is woken. While the consuming thread decodes one response, the next fetch is in flight.

Use only in the engine's thread. Source: KIP-74, KIP-227, KIP-392, KIP-951; Kafka 3.9 AbstractFetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from plog.client.consumer.fetch_buffer import FetchBuffer
from plog.client.consumer.fetch_metrics import FetchMetrics
from plog.client.consumer.fetch_plan import FetchPlan, plan_fetch
from plog.client.consumer.fetch_response import FetchResponseHandler
from plog.client.consumer.fetch_sessions import FetchLimits, FetchSession
from plog.client.consumer.offset_lookup import MAY_PASS
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import ClosedError
from plog.client.network.cluster import Cluster
from plog.client.network.connection import Connection
from plog.client.network.leader_hints import named_leader
from plog.client.network.metadata import NO_NODE, ClusterMetadata
from plog.client.network.ports import Cancelled, Network, Task
from plog.errors import ErrorCode, KafkaError, PlogError
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchRequest, FetchResponse
from plog.wire.schema import WireError

log = logging.getLogger("plog.client")

# After these errors, the session can no longer be used; the next fetch must be full (KIP-227).
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Fetcher:
    """All fetch loops of a consumer.

    The fetcher calls `on_data` when records or an error can be taken, and `on_lost_position` when a
    partition needs a new position.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        positions: SubscriptionState,
        buffer: FetchBuffer,
        results: FetchResponseHandler,
        metrics: FetchMetrics,
        *,
        limits: FetchLimits,
        fetch_max_bytes: int,
        partition_max_bytes: int,
        delay_s: Callable[[int], float],
        on_data: Callable[[], None],
        on_lost_position: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.network = network
        self.positions = positions
        self.results = results
        self.metrics = metrics
        self.limits = limits
        self.delay_s = delay_s
        self.on_data = on_data
        self.on_lost_position = on_lost_position
        self._buffer = buffer
        self._fetch_max_bytes = fetch_max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._loops: dict[int, NodeFetcher] = {}
        self._is_closed = False

    def wake(self) -> None:
        """Check for partitions to fetch, and start loops for new leaders."""
        if self._is_closed:
            return
        now_s = self.network.now_s()
        # Release the lock before starting loops, because they acquire it.
        with self.positions.lock:
            nodes = {state.node_at(now_s) for state in self.positions.states.values()}
        for node_id in nodes - {NO_NODE} - self._loops.keys():
            self._loops[node_id] = NodeFetcher(self, node_id)
            self._loops[node_id].start()
        # Waking a loop may start other loops, so iterate over a copy.
        for loop in tuple(self._loops.values()):
            loop.wake()

    def close_removed_brokers(self, metadata: ClusterMetadata) -> None:
        """Stop the loops of brokers that are no longer in the metadata."""
        for node_id in self._loops.keys() - metadata.brokers.keys():
            loop = self._loops.pop(node_id, None)
            if loop is not None:
                loop.close()

    def plan(self, node_id: int) -> FetchPlan:
        """Return the plan for the next fetch from a node."""
        with self.positions.lock:
            plan = plan_fetch(
                self.positions,
                node_id,
                self.network.now_s(),
                fetch_max_bytes=self._fetch_max_bytes,
                partition_max_bytes=self._partition_max_bytes,
            )
            if plan.is_full:
                # Set the flag while still holding the lock: otherwise, room that is freed in
                # between would be missed.
                self._buffer.wants_room_notice = True
        return plan

    def close(self) -> None:
        """Stop all loops, and close the fetch sessions of open connections."""
        self._is_closed = True
        for loop in tuple(self._loops.values()):
            # Cancel the loop first: no fetch may use the session after the request that closes it.
            loop.close()
            loop.close_session()


class NodeFetcher:
    """The fetch loop of one broker."""

    def __init__(self, fetcher: Fetcher, node_id: int) -> None:
        self._fetcher = fetcher
        self._node_id = node_id
        self._session = FetchSession()
        self._signal = fetcher.network.signal()
        self._task: Task | None = None
        self._failures = 0

    def start(self) -> None:
        """Start the loop."""
        what = f"fetching from broker {self._node_id}"
        self._task = self._fetcher.network.spawn(self._run(), what)

    def wake(self) -> None:
        """Check again for partitions to fetch."""
        self._signal.set()

    def close(self) -> None:
        """Stop the loop."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        network, cluster = self._fetcher.network, self._fetcher.cluster
        while True:
            try:
                connection = cluster.idle_connection(self._node_id)
                # Clear the signal before planning: a change during planning must cause another
                # round.
                self._signal.clear()
                plan = self._fetcher.plan(self._node_id)
                if not plan.partitions:
                    at_s = plan.retry_at_s
                    wait_s = None if at_s is None else max(0.0, at_s - network.now_s())
                    await self._signal.wait(wait_s)
                elif connection is None or not connection.is_open:
                    # Plan again after connecting, because the partitions may have changed by then.
                    await cluster.connection(self._node_id)
                else:
                    await self._fetch(connection, plan)
            except (Cancelled, ClosedError):
                return
            except Exception as error:
                await self._failed(error)

    async def _fetch(self, connection: Connection, plan: FetchPlan) -> None:
        """Send one fetch and handle its response."""
        fetcher = self._fetcher
        version = connection.version_of(FetchRequest)
        # The session's epoch counts requests, so build the request only right before sending it.
        request = self._session.request(
            plan.partitions, plan.max_bytes, fetcher.limits, version=version
        )
        began_s = fetcher.network.now_s()
        response = await connection.ask(request, FetchResponse, version=version)
        latency_s = fetcher.network.now_s() - began_s
        self._session.answered(response)
        # A top-level error is about the session or the whole request, not about a partition.
        if response.error_code:
            await self._refused(response.error_code)
            return
        self._failures = 0
        moved = self._learn_leaders(response)
        outcome = fetcher.results.handle(plan.partitions, response, moved)
        if outcome.metadata_is_stale:
            fetcher.cluster.request_update()
        if outcome.needs_offset:
            fetcher.on_lost_position()
        if outcome.has_moved:
            fetcher.wake()
        if outcome.for_application:
            fetcher.on_data()
        if outcome.for_application or response.throttle_time_ms > 0:
            # Let the application run before the next fetch; it may share this event loop.
            await fetcher.network.sleep(response.throttle_time_ms / 1000)
        fetcher.metrics.fetched(
            latency_s=latency_s,
            size_bytes=outcome.size_bytes,
            throttle_ms=response.throttle_time_ms,
        )

    def _learn_leaders(self, response: FetchResponse) -> Collection[TopicPartition]:
        """Take over the leaders that a response names; return the partitions that have moved."""
        leaders = {
            TopicPartition(topic.topic, one.partition_index): leader
            for topic in response.responses
            for one in topic.partitions
            if one.error_code
            and (leader := named_leader(one.error_code, one.current_leader)) is not None
        }
        if not leaders:
            return ()
        return self._fetcher.cluster.learn_leaders(leaders, response.node_endpoints)

    async def _refused(self, code: int) -> None:
        """Handle a top-level error in a fetch response."""
        # Retry immediately the first time: a busy broker evicts sessions in normal operation, and
        # the next fetch is full.
        if code in _SESSION_ERRORS and not self._failures:
            log.debug("broker %d has closed the fetch session: error %d", self._node_id, code)
            self._failures += 1
            return
        log.warning("cannot fetch from broker %d: error %d", self._node_id, code)
        await self._pause()

    async def _failed(self, error: Exception) -> None:
        """Handle a fetch without a valid response."""
        fetcher = self._fetcher
        # The broker may have processed the request, so the session's state is unknown.
        self._session.failed()
        fetcher.cluster.request_update()
        # If this broker is a follower, fetch the partitions from their leaders instead.
        if fetcher.positions.forget_node(self._node_id):
            fetcher.wake()
        may_pass = isinstance(error, KafkaError) and (error.retriable or error.code in MAY_PASS)
        # A malformed response counts as a connection error, but a retry rarely helps, so report it.
        if may_pass and not isinstance(error, WireError):
            log.debug("broker %d: %s", self._node_id, error)
        else:
            if not isinstance(error, PlogError):
                log.exception("unexpected error while fetching from broker %d", self._node_id)
            fetcher.positions.fail_all(f"broker {self._node_id}", error)
            fetcher.on_data()
        await self._pause()

    async def _pause(self) -> None:
        delay_s = self._fetcher.delay_s(self._failures)
        self._failures += 1
        await self._fetcher.network.sleep(delay_s)

    def close_session(self) -> None:
        """Close the broker's session, if a connection is open."""
        request = self._session.closing_request()
        # Brokers expire old sessions, so do not open a connection only for this request.
        connection = self._fetcher.cluster.idle_connection(self._node_id)
        if request is not None and connection is not None and connection.is_open:
            self._fetcher.network.spawn(
                _send_closing_request(connection, request), "closing a session"
            )


async def _send_closing_request(connection: Connection, request: FetchRequest) -> None:
    try:
        await connection.ask(request, FetchResponse)
    except (PlogError, Cancelled):
        pass  # The broker will expire the session.
