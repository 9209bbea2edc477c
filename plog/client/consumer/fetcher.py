"""Fetching: a loop for each broker that leads something assigned, one fetch under way at a time.

A fetch names all partitions that may be fetched from that broker (fetch_plan.py) and waits there
for data up to fetch.max.wait.ms, so nothing turns in vain: with nothing to fetch the loop waits
until it is woken. While one answer is decoded by the consuming thread the next is under way.

For the engine's thread. Source: KIP-74, KIP-227, KIP-392; Kafka 3.9 AbstractFetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
from plog.client.network.metadata import NO_NODE, ClusterMetadata
from plog.client.network.ports import Cancelled, Network, Task
from plog.errors import ErrorCode, KafkaError, PlogError
from plog.wire.messages.fetch import FetchRequest, FetchResponse
from plog.wire.schema import WireError

log = logging.getLogger("plog.client")

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Fetcher:
    """All loops together. `on_data` is called when there is something to take, or an error.

    `on_lost_position` is called when a partition has to find a position anew.
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
        """There may be something to fetch that there was not."""
        if self._is_closed:
            return
        now_s = self.network.now_s()
        with self.positions.lock:
            nodes = {state.node_at(now_s) for state in self.positions.states.values()}
        for node_id in nodes - {NO_NODE} - self._loops.keys():
            self._loops[node_id] = NodeFetcher(self, node_id)
            self._loops[node_id].start()
        for loop in tuple(self._loops.values()):  # One of them may have others begin.
            loop.wake()

    def brokers_are(self, metadata: ClusterMetadata) -> None:
        """End the loops of brokers that are gone."""
        for node_id in self._loops.keys() - metadata.brokers.keys():
            loop = self._loops.pop(node_id, None)
            if loop is not None:
                loop.close()

    def plan(self, node_id: int) -> FetchPlan:
        """What to fetch from a node now."""
        with self.positions.lock:
            plan = plan_fetch(
                self.positions,
                node_id,
                self.network.now_s(),
                fetch_max_bytes=self._fetch_max_bytes,
                partition_max_bytes=self._partition_max_bytes,
            )
            if plan.is_full:
                self._buffer.is_waited_for = True
        return plan

    def close(self) -> None:
        """End all loops; brokers are told that their sessions are over, if that costs nothing."""
        self._is_closed = True
        for loop in tuple(self._loops.values()):
            loop.close()
            loop.say_goodbye()


class NodeFetcher:
    """The loop of one broker."""

    def __init__(self, fetcher: Fetcher, node_id: int) -> None:
        self._fetcher = fetcher
        self._node_id = node_id
        self._session = FetchSession()
        self._signal = fetcher.network.signal()
        self._task: Task | None = None
        self._failures = 0

    def start(self) -> None:
        """Begin."""
        what = f"fetching from broker {self._node_id}"
        self._task = self._fetcher.network.spawn(self._run(), what)

    def wake(self) -> None:
        """Look again what there is to fetch."""
        self._signal.set()

    def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        network, cluster = self._fetcher.network, self._fetcher.cluster
        while True:
            try:
                connection = cluster.idle_connection(self._node_id)
                self._signal.clear()
                plan = self._fetcher.plan(self._node_id)
                if not plan.partitions:
                    at_s = plan.retry_at_s
                    wait_s = None if at_s is None else max(0.0, at_s - network.now_s())
                    await self._signal.wait(wait_s)
                elif connection is None or not connection.is_open:
                    # What is to be fetched may be something else when it is there.
                    await cluster.connection(self._node_id)
                else:
                    await self._fetch(connection, plan)
            except (Cancelled, ClosedError):
                return
            except Exception as error:
                await self._failed(error)

    async def _fetch(self, connection: Connection, plan: FetchPlan) -> None:
        """One fetch, and what comes of it."""
        fetcher = self._fetcher
        version = connection.version_of(FetchRequest)
        request = self._session.request(
            plan.partitions, plan.max_bytes, fetcher.limits, version=version
        )
        began_s = fetcher.network.now_s()
        response = await connection.ask(request, FetchResponse, version=version)
        latency_s = fetcher.network.now_s() - began_s
        self._session.answered(response)
        if response.error_code:
            await self._refused(response.error_code)
            return
        self._failures = 0
        news = fetcher.results.take_in(plan.partitions, response)
        if news.metadata_is_stale:
            fetcher.cluster.request_update()
        if news.needs_offset:
            fetcher.on_lost_position()
        if news.has_moved:
            fetcher.wake()
        if news.for_application:
            fetcher.on_data()
        if news.for_application or response.throttle_time_ms > 0:
            # First the application, which may wait on this very loop, and then the next fetch.
            await fetcher.network.sleep(response.throttle_time_ms / 1000)
        fetcher.metrics.fetched(
            latency_s=latency_s,
            size_bytes=news.size_bytes,
            throttle_ms=response.throttle_time_ms,
        )

    async def _refused(self, code: int) -> None:
        """The fetch as a whole was answered with an error."""
        if code in _SESSION_ERRORS and not self._failures:
            log.debug("broker %d: its fetch session is over (error %d)", self._node_id, code)
            self._failures += 1
            return  # The next fetch is a full one.
        log.warning("broker %d refuses to be fetched from: error %d", self._node_id, code)
        await self._pause()

    async def _failed(self, error: Exception) -> None:
        """There was no answer, or one without a sense."""
        fetcher = self._fetcher
        self._session.failed()
        fetcher.cluster.request_update()
        if fetcher.positions.forget_node(self._node_id):
            fetcher.wake()  # Their leaders have it, too.
        may_pass = isinstance(error, KafkaError) and (error.retriable or error.code in MAY_PASS)
        if may_pass and not isinstance(error, WireError):
            log.debug("broker %d: %s", self._node_id, error)
        else:
            if not isinstance(error, PlogError):
                log.exception("a bug while fetching from broker %d", self._node_id)
            fetcher.positions.fail_all(f"broker {self._node_id}", error)
            fetcher.on_data()
        await self._pause()

    async def _pause(self) -> None:
        delay_s = self._fetcher.delay_s(self._failures)
        self._failures += 1
        await self._fetcher.network.sleep(delay_s)

    def say_goodbye(self) -> None:
        """Have the broker forget the session, if the connection to it is open."""
        request = self._session.closing_request()
        connection = self._fetcher.cluster.idle_connection(self._node_id)
        if request is not None and connection is not None and connection.is_open:
            self._fetcher.network.spawn(_ask_and_forget(connection, request), "closing a session")


async def _ask_and_forget(connection: Connection, request: FetchRequest) -> None:
    try:
        await connection.ask(request, FetchResponse)
    except (PlogError, Cancelled):
        pass  # The broker forgets it by itself, later.
