"""The offset fetcher: it finds and validates the positions of assigned partitions.

A position is a committed offset or the result of a reset (offset_reset.py). It is validated after
each change of leader. One coroutine checks which partitions need a position and sends requests to
the brokers concurrently, so that an unresponsive broker does not delay the others. A response
applies only to the generation for which it was requested (subscription_state.py). All errors are
retried with a backoff; `take` also reports permanent errors.

Source: KIP-320 (truncation); Kafka 3.9 OffsetFetcher, SubscriptionState.maybeCompleteValidation.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from plog.client.consumer.offset_lookup import CONSUMER, MAY_PASS, OffsetLookup, TimestampQuery
from plog.client.consumer.offset_reset import reset_truncated, reset_uncommitted
from plog.client.consumer.partition_state import NO_EPOCH, Inquiry, PartitionState, Phase
from plog.client.consumer.reset_target import LATEST
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import ClosedError, error_about
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    ErrorCode,
    KafkaError,
    PlogError,
    UnknownTopicOrPartition,
    error_from_code,
)
from plog.types import TopicPartition
from plog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

log = logging.getLogger("plog.client")

Committed = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]
]


class OffsetFetcher:
    """The component that finds a consumer's positions. Use only in the engine's thread.

    It calls `on_found` when it has found a position, and `on_error` when it has recorded an error
    for the application.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        positions: SubscriptionState,
        lookup: OffsetLookup,
        *,
        committed: Committed | None,
        request_timeout_s: float,
        patience_s: float,
        delay_s: Callable[[int], float],
        on_found: Callable[[], None],
        on_error: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._positions = positions
        self._lookup = lookup
        self._committed = committed
        self._request_timeout_s = request_timeout_s
        self._patience_s = patience_s
        """How long a partition may be missing from the metadata before an error is reported."""
        self._delay_s = delay_s
        self._on_found = on_found
        self._on_error = on_error
        self._signal = network.signal()
        self._tasks: list[Task] = []

    def start(self) -> None:
        """Start the coroutine that checks the partitions."""
        self._spawn(self._run(), "finding positions")

    def wake(self) -> None:
        """Check the partitions again."""
        self._signal.set()

    def close(self) -> None:
        """Cancel the coroutine and all requests."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        # The task may run immediately and call this method, so change `_tasks` only afterwards.
        task = self._network.spawn(coroutine, what)
        # Dropping finished tasks here keeps the list short without callbacks.
        self._tasks = [other for other in self._tasks if not other.done]
        self._tasks.append(task)

    async def _ask(
        self,
        coroutine: Coroutine[Any, Any, None],
        about: Sequence[tuple[PartitionState, int]],
    ) -> None:
        """Run a request; if it fails unexpectedly, report the error and retry later."""
        try:
            await coroutine
        except (Cancelled, ClosedError):
            # The consumer is closing, so no errors may be reported.
            raise
        except Exception as error:
            # Keep looking for positions even after an unexpected error.
            if not isinstance(error, PlogError):
                log.exception("unexpected error while finding positions")
            for state, generation in about:
                self._back_off(state, generation)
                self._positions.fail(state, generation, error)
            self._on_error()
            self.wake()

    async def _run(self) -> None:
        while True:
            # Clear the signal first: a change during the check must cause another check.
            self._signal.clear()
            now_s = self._network.now_s()
            initial = self._positions.begin_initial(now_s)
            if initial:
                finding = self._ask(self._find_initial(initial), initial)
                self._spawn(finding, "looking up committed offsets")
            by_leader: dict[tuple[int, bool], list[Inquiry]] = {}
            for inquiry in self._positions.begin_inquiries(now_s):
                # Resets and validations use different requests: ListOffsets and
                # OffsetForLeaderEpoch.
                kind = (inquiry.leader, inquiry.reset is not None)
                by_leader.setdefault(kind, []).append(inquiry)
            for (leader, is_reset), inquiries in by_leader.items():
                find = self._find_offsets if is_reset else self._validate
                about = [(one.state, one.generation) for one in inquiries]
                asking = self._ask(find(leader, inquiries), about)
                self._spawn(asking, f"requesting positions from broker {leader}")
            self._report_unknown(now_s)
            await self._signal.wait(self._next_check_s())

    def _next_check_s(self) -> float | None:
        phases = (Phase.NO_OFFSET, Phase.RESETTING, Phase.VALIDATING)
        now_s = self._network.now_s()
        times = [
            time_s
            for time_s in (
                self._positions.next_retry_s(phases, now_s),
                self._positions.next_unknown_s(self._patience_s),
            )
            if time_s is not None
        ]
        return max(0.0, min(times) - now_s) if times else None

    def _report_unknown(self, now_s: float) -> None:
        reported = False
        for state, generation in self._positions.unknown_for(self._patience_s, now_s):
            error = UnknownTopicOrPartition(
                f"cannot read {state.partition}: it has been missing for {self._patience_s:g} s;"
                " correct its name or create it; the consumer will read it as soon as it exists"
            )
            reported |= self._positions.fail(state, generation, error)
        if reported:
            self._on_error()

    # -- committed offsets ------------------------------------------------------------------------

    async def _find_initial(self, wanted: Sequence[tuple[PartitionState, int]]) -> None:
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        # Without a group, there are no committed offsets.
        if self._committed is not None:
            try:
                committed = await self._committed([state.partition for state, _ in wanted])
            except KafkaError as error:
                for state, generation in wanted:
                    self._failed(state, generation, error)
                return
        uncommitted: list[tuple[PartitionState, int]] = []
        for state, generation in wanted:
            found = committed.get(state.partition)
            if found is not None:
                self._positions.place(state, generation, found.offset, found.leader_epoch)
            else:
                uncommitted.append((state, generation))
        for state, generation, no_offset in reset_uncommitted(self._positions, uncommitted):
            self._report(state, generation, no_offset)
        self._found()

    # -- resets -----------------------------------------------------------------------------------

    async def _find_offsets(self, leader: int, inquiries: Sequence[Inquiry]) -> None:
        # All ``by_duration`` resets in one request must use the same time.
        now_ms = self._network.wall_ms()
        queries = [
            TimestampQuery(one.state.partition, one.reset.timestamp_at(now_ms), one.leader_epoch)
            for one in inquiries
            if one.reset is not None
        ]
        answers = await self._lookup.ask(leader, queries, self._request_timeout_s)
        for one in inquiries:
            partition = one.state.partition
            error = answers.failed.get(partition)
            if error is not None:
                self._failed(one.state, one.generation, error)
                continue
            found = answers.found[partition]
            if found is not None:
                log.info("reset %s to offset %d, %s", partition, found.offset, one.reset)
                self._positions.place(one.state, one.generation, found.offset)
            elif one.reset != LATEST:
                # All records are older than the requested time.
                self._positions.reset_elsewhere(one.state, one.generation, LATEST)
            else:
                # Every log has an end, so the leader's response is invalid.
                error = error_from_code(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"the leader of {partition} did not return an offset",
                )
                self._failed(one.state, one.generation, error)
        self._found()

    # -- validation -------------------------------------------------------------------------------

    async def _validate(self, leader: int, inquiries: Sequence[Inquiry]) -> None:
        try:
            connection = await self._cluster.connection(leader)
            # Brokers before KIP-320 cannot validate a position.
            if not connection.speaks(OffsetForLeaderEpochRequest):
                ends = None
            else:
                response = await self._cluster.ask_node(
                    leader, _epochs_request(inquiries), OffsetForLeaderEpochResponse
                )
                ends = {
                    TopicPartition(topic.topic, one.partition): one
                    for topic in response.topics
                    for one in topic.partitions
                }
        except KafkaError as error:
            for one in inquiries:
                self._failed(one.state, one.generation, error)
            return
        for one in inquiries:
            if ends is None:
                self._positions.validated(one.state, one.generation)
            else:
                self._check_end(one, ends.get(one.state.partition))
        self._found()

    def _check_end(self, one: Inquiry, end: EpochEndOffset | None) -> None:
        """Compare a position with the end of its epoch in the leader's log."""
        partition, position = one.state.partition, one.position
        assert position is not None
        if end is None or end.error_code:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if end is None else end.error_code
            error = error_about(code, f"cannot validate the position in {partition}")
            self._failed(one.state, one.generation, error)
        elif end.leader_epoch > NO_EPOCH and position <= end.end_offset:
            # KIP-320: the position is valid if the leader's log contains the epoch at least up to
            # the position.
            self._positions.validated(one.state, one.generation)
        else:
            reset_error = reset_truncated(self._positions, one, end)
            if reset_error is not None:
                self._report(one.state, one.generation, reset_error)

    # -- failures ---------------------------------------------------------------------------------

    def _failed(self, state: PartitionState, generation: int, error: KafkaError) -> None:
        self._back_off(state, generation)
        # Retriable errors usually mean that the leader has changed. Permanent errors are retried as
        # well, because a permission may be granted later.
        if error.retriable or error.code in MAY_PASS:
            log.debug("%s: %s", state.partition, error)
            self._cluster.request_update()
        elif self._positions.fail(state, generation, error):
            self._on_error()
        # Wake the coroutine, because the backoff changes the time of the next check.
        self.wake()

    def _report(self, state: PartitionState, generation: int, error: Exception) -> None:
        if self._positions.fail(state, generation, error):
            self._back_off(state, generation)
            self._on_error()

    def _back_off(self, state: PartitionState, generation: int) -> None:
        self._positions.back_off(state, generation, self._network.now_s(), self._delay_s)

    def _found(self) -> None:
        self.wake()
        self._on_found()


def _epochs_request(inquiries: Sequence[Inquiry]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for one in inquiries:
        topics.setdefault(one.state.partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=one.state.partition.partition,
                current_leader_epoch=one.leader_epoch,
                leader_epoch=one.position_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[
            OffsetForLeaderTopic(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
