"""The sender: it groups batches into produce requests, sends them and awaits the responses.

One coroutine checks the queues whenever a batch is full, has lingered or is due for a retry. It
also checks them when a response arrives while batches wait, when a connection opens, and when
metadata changes. Each request has its own coroutine, which awaits the response;
batch_completion.py decides the outcome.

At most max.in.flight.requests.per.connection requests to a broker are in flight, each with at most
one batch per partition. A problem with one partition or broker does not delay the others.

Source: Kafka 4.3 Sender, RecordAccumulator.drain; KIP-91, KIP-219, KIP-951.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from plog.client.errors import AuthenticationFailed, BrokenAnswer, ClosedError
from plog.client.network.cluster import Cluster
from plog.client.network.connection import Connection
from plog.client.network.leader_hints import named_leader
from plog.client.network.ports import Network
from plog.client.producer.accumulator import Accumulator
from plog.client.producer.batch_completion import STALE_METADATA, BatchCompletion
from plog.client.producer.batch_encoder import BatchEncoder
from plog.client.producer.metrics import ProducerMetrics
from plog.client.producer.partition_queue import PartitionQueue
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.producer.producer_ids import ProducerIds
from plog.client.settings import ProducerSettings
from plog.client.task_completion import TaskCompletion
from plog.client.transactions.transaction_state import TransactionState
from plog.errors import KafkaError, PlogError, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from plog.wire.schema import WireError

log = logging.getLogger("plog.client")


class _Node:
    """The sender's state for one broker."""

    __slots__ = (
        "blocked_since_s",
        "has_failed",
        "in_flight",
        "is_connecting",
        "not_before_s",
        "was_connected",
    )

    def __init__(self) -> None:
        self.in_flight = 0
        self.is_connecting = False
        self.has_failed = False
        """The last attempt to connect failed; the failure is logged only once."""
        self.was_connected = False
        self.not_before_s = 0.0
        """Sending resumes at this time: the broker has throttled this client or was unreachable."""
        self.blocked_since_s = math.inf
        """When batches started to wait for the broker; infinity if none are waiting."""


class Sender:
    """The component that sends batches to their leaders. Use only in the engine's thread."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ProducerSettings,
        accumulator: Accumulator[Any],
        deliveries: BatchCompletion,
        metrics: ProducerMetrics,
        *,
        on_slow: Callable[[], None],
        transaction: TransactionState | None = None,
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._accumulator = accumulator
        self._deliveries = deliveries
        self._metrics = metrics
        self._on_slow = on_slow
        self._transaction = transaction
        self._encoder = BatchEncoder(settings)
        self._signal = network.signal()
        self._nodes: dict[int, _Node] = {}
        self._ids = ProducerIds(cluster, network, self._fail_without_id, self.wake)
        self._linger_s = settings.linger_ms / 1000
        # As in Kafka, 0 disables the detection of slow brokers.
        self._slow_after_s = settings.partitioner_availability_timeout_ms / 1000 or math.inf
        self._is_saturated = False
        """No broker accepts more requests: a response triggers a check, but new records do not."""
        self._is_stopped = False
        self.slow_nodes: set[int] = set()
        """Brokers that have not accepted any batches for partitioner.availability.timeout.ms."""
        cluster.on_update.append(lambda _: self.wake())

    def wake(self) -> None:
        """Schedule a check of the queues."""
        self._signal.set()

    async def run(self) -> None:
        """Send batches until `stop` is called."""
        while not self._is_stopped:
            self._signal.clear()
            try:
                next_check_s = self._check_queues()
            except Exception:  # A bug in plog must not stall the other batches.
                log.exception("the producer's sender failed")
                next_check_s = self._network.now_s() + 1
            await self._signal.wait(max(0.0, next_check_s - self._network.now_s()))

    def stop(self) -> None:
        """Stop sending, and ignore later responses."""
        self._is_stopped = True
        # Otherwise, a request for a producer ID would continue after `close`.
        self._ids.stop()
        self.wake()

    # -- choosing batches -----------------------------------------------------------------------

    def _check_queues(self) -> float:
        """Send every batch that is due, and return when to check again unless woken earlier."""
        # Must be called first, so that records added during the check wake the sender again.
        self._accumulator.begin_check()
        # Expire batches before sending: an expired batch must not be sent again.
        next_check_s = self._deliveries.expire()
        now_s = self._network.now_s()
        ready: dict[int, list[PartitionQueue]] = {}
        # Sending changes the dictionary, so iterate over a copy. The order is fair, because a queue
        # that was served moves to the end.
        for queue in list(self._accumulator.waiting):
            due_s = self._due_s(queue)
            if due_s > now_s:
                next_check_s = min(next_check_s, due_s)
            else:
                leader = self._leader_of(queue)
                if leader is not None:
                    ready.setdefault(leader, []).append(queue)
        for node_id, queues in ready.items():
            next_check_s = min(next_check_s, self._serve(node_id, queues, now_s))
        # A broker without waiting batches is idle, not slow.
        for node_id in self._nodes.keys() - ready.keys():
            self._mark_unblocked(node_id)
        self._is_saturated = self._are_all_brokers_busy()
        self._accumulator.end_check(0.0 if self._is_saturated else next_check_s)
        return next_check_s

    def _are_all_brokers_busy(self) -> bool:
        """Return whether every broker has the maximum number of requests in flight."""
        # The detection of slow brokers needs regular checks, which a result of True would suspend.
        if self._slow_after_s < math.inf:
            return False
        most = self._settings.max_in_flight_requests_per_connection
        brokers = self._cluster.metadata.brokers
        return bool(brokers) and all(
            node_id in self._nodes and self._nodes[node_id].in_flight >= most for node_id in brokers
        )

    def _due_s(self, queue: PartitionQueue) -> float:
        """Return when the first batch in `queue` may be sent; 0 means immediately."""
        batch = queue.batches[0]
        if batch.attempts and not self._has_new_leader(batch):
            return batch.retry_at_s
        # A full batch never lingers. While records wait for memory, no batch lingers.
        if batch.is_urgent or self._accumulator.line_length or batch is not queue.open:
            return 0.0
        return batch.created_s + self._linger_s

    def _has_new_leader(self, batch: ProducerBatch) -> bool:
        """Return whether the leader has changed since the last attempt."""
        # KIP-951: the backoff gives a leader time to recover; a new leader does not need that time.
        partition = self._cluster.metadata.partition(batch.topic_partition)
        return partition is not None and 0 <= batch.leader_epoch < partition.leader_epoch

    def _may_send(self, queue: PartitionQueue) -> bool:
        """Return whether sending the first batch in `queue` now preserves the order of batches."""
        sequences = queue.sequences
        if sequences is None:
            # Without sequence numbers, retries preserve the order only with a single request in
            # flight.
            is_ordered = self._settings.max_in_flight_requests_per_connection == 1
            return not (is_ordered and queue.on_wire)
        if not sequences.may_send(queue.batches[0]):
            return False
        # `fit` requests a producer ID if none is available.
        return sequences.identity is not None or self._ids.fit(sequences.past_producer_id)

    def _leader_of(self, queue: PartitionQueue) -> int | None:
        leader = self._cluster.metadata.leader_of(queue.topic_partition)
        if leader is None:
            self._request_metadata(queue.topic.name)
        return leader

    def _request_metadata(self, topic: str) -> None:
        self._cluster.add_topic(topic)
        self._cluster.request_update()

    def _serve(self, node_id: int, queues: list[PartitionQueue], now_s: float) -> float:
        """Send as many waiting batches from `queues` to a broker as it accepts now.

        Returns when to check again, or infinity if an event will trigger the next check.
        """
        node = self._nodes.setdefault(node_id, _Node())
        # The broker has throttled this client (KIP-219), or a connection attempt has just failed.
        if node.not_before_s > now_s:
            return min(node.not_before_s, self._mark_blocked(node_id, node, now_s))
        connection = self._cluster.idle_connection(node_id)
        if connection is None:
            if not node.is_connecting:
                node.is_connecting = True
                self._network.spawn(self._connect(node_id, node), f"connecting to broker {node_id}")
            return self._mark_blocked(node_id, node, now_s)
        if node.in_flight >= self._settings.max_in_flight_requests_per_connection:
            return self._mark_blocked(node_id, node, now_s)
        self._mark_unblocked(node_id)
        sendable = queues
        while node.in_flight < self._settings.max_in_flight_requests_per_connection:
            sendable = [
                queue
                for queue in sendable
                if queue.batches and self._due_s(queue) <= now_s and self._may_send(queue)
            ]
            if not sendable or not connection.is_open:
                break
            self._send(node, connection, self._take(sendable))
        due = (self._due_s(queue) for queue in queues if queue.batches)
        # Queues that are due but cannot be served now wait for an event, not for a time.
        return min((due_s for due_s in due if due_s > now_s), default=math.inf)

    def _mark_blocked(self, node_id: int, node: _Node, now_s: float) -> float:
        """Record that a broker does not accept batches now.

        Returns when the broker becomes a slow broker, or infinity if it already is.
        """
        node.blocked_since_s = min(node.blocked_since_s, now_s)
        slow_at_s = node.blocked_since_s + self._slow_after_s
        if slow_at_s > now_s:
            return slow_at_s
        if node_id not in self.slow_nodes:
            self.slow_nodes.add(node_id)
            self._on_slow()
        return math.inf

    def _mark_unblocked(self, node_id: int) -> None:
        """Record that a broker accepts requests, or that no batches are waiting for it."""
        self._nodes[node_id].blocked_since_s = math.inf
        if node_id in self.slow_nodes:
            self.slow_nodes.remove(node_id)
            self._on_slow()

    def _take(self, queues: Sequence[PartitionQueue]) -> list[ProducerBatch]:
        """Take and encode the first batch of each queue, up to max.request.size in total."""
        batches: list[ProducerBatch] = []
        size_bytes = 0
        for queue in queues:
            # Take the first batch regardless of its size: the broker decides whether to accept it.
            expected_bytes = self._encoder.expected_bytes(queue)
            if batches and size_bytes + expected_bytes > self._settings.max_request_size:
                break
            batch = self._accumulator.take(queue)
            queue.on_wire += 1
            batch.on_wire = True
            if queue.sequences is not None:
                # KIP-98: a broker accepts numbers only in sequence, so assign them in send order.
                queue.sequences.sent(batch, queue.sequences.identity or self._ids.identity)
            try:
                encoded = self._encoder.encode(batch, queue)
            except Exception as error:
                if not isinstance(error, PlogError | ValueError):  # A bug; fail only this batch.
                    log.exception("cannot encode a batch for %s", batch.topic_partition)
                # The other batches of this request can still be sent.
                self._deliveries.unsent(batch, error)
                continue
            size_bytes += len(encoded)
            batches.append(batch)
        return batches

    # -- requests -------------------------------------------------------------------------------

    def _send(self, node: _Node, connection: Connection, batches: list[ProducerBatch]) -> None:
        """Send one request with `batches`; with acks=0, wait only until it is written."""
        if not batches:
            return
        for batch in batches:
            known = self._cluster.metadata.partition(batch.topic_partition)
            # KIP-951: with this epoch, a retry can see whether the leader has changed, and then
            # skip its backoff.
            batch.leader_epoch = -1 if known is None else known.leader_epoch
        request = self._request(batches)
        try:
            if request.acks == 0:
                rest = self._await_written(node, connection.send(request), batches)
            else:
                version = None  # The highest version that the broker supports.
                # KIP-890: in newer versions, Produce adds its partitions to the transaction. In
                # version 1 of transactions, a separate request adds them.
                if self._transaction is not None:
                    highest = connection.version_of(ProduceRequest)
                    version = self._transaction.produce_version(highest)
                answer = connection.ask(request, ProduceResponse, version=version)
                rest = self._await_answer(node, answer, batches)
        except Exception as error:
            # After a lost connection, a later attempt may succeed. After any other error, a retry
            # would fail in the same way.
            if isinstance(error, KafkaError) and not isinstance(error, UnsupportedVersion):
                self._fail_request(batches, error)
                return
            for batch in batches:
                self._deliveries.unsent(batch, error)
        else:
            node.in_flight += 1
            self._metrics.requests_in_flight += 1
            self._count(batches)
            self._network.spawn(rest, "sending a produce request")

    def _count(self, batches: Sequence[ProducerBatch]) -> None:
        """Update the metrics; call this after the request was sent, to avoid delaying it."""
        now_s = self._network.now_s()
        size_bytes = 0
        for batch in batches:
            encoded_bytes = len(batch.encoded or b"")
            size_bytes += encoded_bytes
            self._metrics.batch_sent(
                records=batch.count,
                uncompressed_bytes=self._encoder.uncompressed_bytes(batch),
                encoded_bytes=encoded_bytes,
                queue_ms=(now_s - batch.created_s) * 1000,
            )
        self._metrics.request_sent(records=sum(batch.count for batch in batches), nbytes=size_bytes)

    def _request(self, batches: Sequence[ProducerBatch]) -> ProduceRequest:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.topic_partition
            data = PartitionProduceData(index=partition, records=batch.encoded)
            by_topic.setdefault(topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.required_acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, partition_data=data)
                for topic, data in by_topic.items()
            ],
        )

    async def _await_answer(
        self, node: _Node, answer: Awaitable[ProduceResponse], batches: Sequence[ProducerBatch]
    ) -> None:
        asked_s = self._network.now_s()
        with TaskCompletion(self._finish_request, node):
            try:
                response = await answer
            except Exception as error:
                if not isinstance(error, KafkaError | WireError):  # A bug; fail only this request.
                    log.exception("a produce request failed")
                if not self._is_stopped:
                    self._fail_request(batches, error)
            else:
                self._metrics.answered(
                    latency_s=self._network.now_s() - asked_s, throttle_ms=response.throttle_time_ms
                )
                if response.throttle_time_ms > 0:
                    throttle_s = response.throttle_time_ms / 1000
                    # KIP-219: the broker responds immediately and expects the client to pause.
                    node.not_before_s = self._network.now_s() + throttle_s
                if not self._is_stopped:
                    self._answered(batches, response)

    async def _await_written(
        self, node: _Node, departure: Awaitable[None], batches: Sequence[ProducerBatch]
    ) -> None:
        # The batches release their memory only after this wait. Otherwise, a producer with acks=0
        # could send faster than the broker reads, without the limit of buffer.memory.
        with TaskCompletion(self._finish_request, node):
            try:
                await departure
            except KafkaError as error:
                if not self._is_stopped:
                    self._fail_request(batches, error)
            else:
                for batch in batches if not self._is_stopped else ():
                    self._deliveries.sent_without_acks(batch)

    def _finish_request(self, node: _Node) -> None:
        node.in_flight -= 1
        self._metrics.requests_in_flight -= 1
        # If no batch waits, the response cannot make a batch sendable.
        if self._accumulator.waiting or self._is_saturated:
            self.wake()

    def _answered(self, batches: Sequence[ProducerBatch], response: ProduceResponse) -> None:
        asked: dict[tuple[str, int], ProducerBatch] = {
            batch.topic_partition: batch for batch in batches
        }
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        stale: set[TopicPartition] = set()
        for topic in response.responses:
            for partition in topic.partition_responses:
                batch = asked.pop((topic.name, partition.index), None)
                if batch is not None:
                    self._deliveries.answered(batch, partition)
                if partition.error_code in STALE_METADATA:
                    key = TopicPartition(topic.name, partition.index)
                    stale.add(key)
                    leader = named_leader(partition.error_code, partition.current_leader)
                    if leader is not None:
                        leaders[key] = leader
        if leaders:
            stale -= self._cluster.learn_leaders(leaders, response.node_endpoints)
        for name, _ in stale:
            self._request_metadata(name)
        # If the response omits a partition, its batch still needs an outcome.
        if asked:
            self._fail_request(
                list(asked.values()),
                BrokenAnswer("malformed produce response: partitions of the request are missing"),
            )

    def _fail_request(self, batches: Sequence[ProducerBatch], error: Exception) -> None:
        """Retry or fail `batches` after their request failed; the broker may have written them."""
        for batch in batches:
            self._deliveries.unanswered(batch, error)
            self._request_metadata(batch.topic_partition.topic)

    async def _connect(self, node_id: int, node: _Node) -> None:
        if node.was_connected:
            # With acks=0, a broker can reject a request only by closing the connection, usually
            # because it is no longer the leader.
            self._cluster.request_update()
        with TaskCompletion(self._finish_connecting, node_id, node):
            try:
                await self._cluster.connection(node_id)
                node.has_failed, node.was_connected = False, True
            except AuthenticationFailed as error:
                # A configuration error: retrying until delivery.timeout.ms would only hide it.
                for queue in list(self._accumulator.waiting):
                    if self._cluster.metadata.leader_of(queue.topic_partition) == node_id:
                        self._fail_waiting(queue, error)
            except ClosedError:
                # The producer is closing.
                pass
            except PlogError as error:
                level = logging.DEBUG if node.has_failed else logging.WARNING
                log.log(level, "broker %d: %s", node_id, error)
                node.has_failed = True
                self._cluster.request_update()

    def _finish_connecting(self, node_id: int, node: _Node) -> None:
        """Resume sending to a broker after a connection attempt has succeeded or failed."""
        # The cluster's node also backs off. This time only prevents useless checks until then.
        if self._cluster.idle_connection(node_id) is None:
            backoff_s = self._settings.retry_backoff_ms / 1000
            node.not_before_s = self._network.now_s() + backoff_s
        node.is_connecting = False
        self.wake()

    def _fail_waiting(self, queue: PartitionQueue, error: Exception) -> None:
        while queue.batches:
            batch = queue.batches[0]
            self._accumulator.remove(batch)
            self._deliveries.fail(batch, error)

    def _fail_without_id(self, error: Exception) -> None:
        """Fail all batches that need a producer ID, because the ID cannot be obtained."""
        for queue in list(self._accumulator.waiting):
            if queue.sequences is not None and queue.sequences.identity is None:
                self._fail_waiting(queue, error)
