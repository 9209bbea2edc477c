"""Route requests to leaders, coordinators or all brokers, and retry items that failed.

An operation on many items sends one request to each broker that serves some of the items. Items
with a retriable error are retried, for example after a leader has moved, while a coordinator is
loading, or after a connection has failed. `settle` contains the retry loop. Each family of
operations decodes its own responses.

Source: Kafka 4.3 AdminApiDriver and its lookup strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from plog.client.admin.results import Results, several
from plog.client.errors import error_about
from plog.errors import ErrorCode, KafkaError, error_from_code
from plog.types import TopicPartition

if TYPE_CHECKING:
    from plog.client.network.bounded_cluster import BoundedCluster
    from plog.client.network.metadata import ClusterMetadata

K = TypeVar("K")
V = TypeVar("V")

Answers: TypeAlias = Mapping[K, V | KafkaError]
Asking: TypeAlias = Coroutine[Any, Any, Answers[K, V]]
RetryPredicate: TypeAlias = Callable[[KafkaError, int], bool]
"""Returns whether an error may still be transient after the given number of attempts."""

# A failed connection may mean that the broker has stopped and the coordinator has moved.
_WRONG_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_PASSING: Final = _WRONG_COORDINATOR | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}
_TRIES_OF_UNKNOWN: Final = 4
"""The number of attempts before a topic is reported as unknown.

A broker may not yet know a topic that was just created. Kafka's own client retries for a minute,
which is a long time for a user who has mistyped a name.
"""


def is_throttled(error: KafkaError, tries: int) -> bool:
    """Return whether the controller throttled or did not accept one item's change (KIP-599)."""
    # With either error, no change has been made, so a retry is safe.
    return error.code in (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NOT_CONTROLLER)


def is_transient(error: KafkaError, tries: int) -> bool:
    """Return whether one item's error is retriable."""
    return error.code in _PASSING


def is_transient_for_leaders(error: KafkaError, tries: int) -> bool:
    """Return whether to retry: after a retriable error, without a leader, or for a new topic."""
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return tries < _TRIES_OF_UNKNOWN
    return error.code == ErrorCode.BROKER_NOT_AVAILABLE or is_transient(error, tries)


async def settle(
    cluster: BoundedCluster,
    items: Iterable[K],
    ask: Callable[[list[K]], Asking[K, V]],
    passing: RetryPredicate = is_transient,
) -> Results[K, V]:
    """Call `ask` with `items`, and retry items with a transient error until the deadline.

    `ask` returns an outcome for each item that it receives. It raises errors that apply to the
    whole request.
    """
    backoff = cluster.backoff()
    waiting = several(items)
    # Responses overwrite these outcomes. An item that no response contains keeps its error.
    outcomes: dict[K, V | KafkaError] = {item: _missing_result(item) for item in waiting}
    tries = 0
    # Without items, do not send a request: it could only fail.
    while waiting:
        answers = await ask(waiting)
        tries += 1
        # A response may contain items that were not requested.
        outcomes |= {item: answers[item] for item in waiting if item in answers}
        # Do not retry items that succeeded: their changes have already taken effect.
        waiting = [item for item in waiting if _may_retry(outcomes[item], passing, tries)]
        if not waiting:
            break
        await backoff.wait()
        # Another attempt after the deadline would replace these errors with a timeout.
        if backoff.is_over:
            break
    return Results(outcomes)


def _may_retry(outcome: object, passing: RetryPredicate, tries: int) -> bool:
    return isinstance(outcome, KafkaError) and passing(outcome, tries)


def _missing_result(item: object) -> KafkaError:
    return KafkaError(f"the response has no result for {item}")


async def ask_nodes(
    cluster: BoundedCluster,
    items_by_node: Mapping[int, Sequence[K]],
    ask: Callable[[int, Sequence[K]], Asking[K, V]],
) -> dict[K, V | KafkaError]:
    """Call `ask` for each node concurrently; a node's error is the outcome of all its items."""

    async def ask_one(node_id: int, items: Sequence[K]) -> Answers[K, V]:
        try:
            return await ask(node_id, items)
        except KafkaError as error:
            # One node's error must not hide the results of the other nodes.
            return dict.fromkeys(items, error)

    outcomes: dict[K, V | KafkaError] = {}
    asked = [ask_one(node_id, items) for node_id, items in items_by_node.items()]
    for answers in await cluster.network.gather(asked):
        outcomes |= answers
    return outcomes


async def by_leader(
    cluster: BoundedCluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, Sequence[TopicPartition]], Asking[TopicPartition, V]],
) -> Results[TopicPartition, V]:
    """Call `ask` for each leader and its partitions, and retry after transient errors."""

    async def ask_leaders(waiting: list[TopicPartition]) -> Answers[TopicPartition, V]:
        # Each attempt needs fresh metadata, because most errors mean that a leader has moved.
        metadata = await cluster.refresh({partition.topic for partition in waiting})
        led: dict[int, list[TopicPartition]] = {}
        leaderless: dict[TopicPartition, V | KafkaError] = {}
        for partition in waiting:
            leader = metadata.leader_of(partition)
            if leader is None:
                leaderless[partition] = _why_no_leader(partition, metadata)
            else:
                led.setdefault(leader, []).append(partition)
        return leaderless | await ask_nodes(cluster, led, ask)

    return await settle(cluster, partitions, ask_leaders, is_transient_for_leaders)


def _why_no_leader(partition: TopicPartition, metadata: ClusterMetadata) -> KafkaError:
    topic = metadata.topics.get(partition.topic)
    if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error_from_code(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {partition.topic} does not exist"
        )
    if topic.error:
        return error_about(topic.error, f"topic {partition.topic}")
    if metadata.partition(partition) is None:
        return error_from_code(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {partition.partition} does not exist: "
            f"topic {partition.topic} has {len(topic.partitions)} partitions",
        )
    return error_from_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")


async def by_coordinator(
    cluster: BoundedCluster,
    groups: Iterable[str],
    ask: Callable[[int, Sequence[str]], Asking[str, V]],
) -> Results[str, V]:
    """Call `ask` for each coordinator and its groups, and retry after transient errors."""

    async def find(group: str) -> int | KafkaError:
        try:
            return await cluster.coordinator(group)
        except KafkaError as error:
            return error

    async def ask_coordinators(waiting: list[str]) -> Answers[str, V]:
        # Each group may have a different coordinator, so look them all up concurrently.
        found = await cluster.network.gather([find(group) for group in waiting])
        coordinated: dict[int, list[str]] = {}
        outcomes: dict[str, V | KafkaError] = {}
        for group, node_id in zip(waiting, found, strict=True):
            if isinstance(node_id, KafkaError):
                outcomes[group] = node_id
            else:
                coordinated.setdefault(node_id, []).append(group)
        outcomes |= await ask_nodes(cluster, coordinated, ask)
        for group, outcome in outcomes.items():
            # Otherwise, the retry would use the cached coordinator again.
            if isinstance(outcome, KafkaError) and outcome.code in _WRONG_COORDINATOR:
                cluster.forget_coordinator(group)
        return outcomes

    return await settle(cluster, groups, ask_coordinators)


async def ask_coordinator(
    cluster: BoundedCluster, group: str, ask: Callable[[int], Coroutine[Any, Any, V]]
) -> V:
    """Call `ask` for one group's coordinator, with retries. Raises the group's error."""

    async def ask_about_one(node_id: int, groups: Sequence[str]) -> Answers[str, V]:
        return {group: await ask(node_id) for group in groups}

    return (await by_coordinator(cluster, [group], ask_about_one)).get(group)


async def by_broker(
    cluster: BoundedCluster,
    brokers: Iterable[int] | None,
    ask: Callable[[int], Coroutine[Any, Any, V]],
) -> Results[int, V]:
    """Call `ask` for each of `brokers`, by default all brokers, and retry after transient errors.

    Returns the outcomes by broker id.
    """
    if brokers is None:
        brokers = sorted((await cluster.refresh(())).brokers)

    async def ask_one(node_id: int, nodes: Sequence[int]) -> Answers[int, V]:
        return {node_id: await ask(node_id)}

    async def ask_all(waiting: list[int]) -> Answers[int, V]:
        return await ask_nodes(cluster, {node_id: (node_id,) for node_id in waiting}, ask_one)

    return await settle(cluster, brokers, ask_all)
