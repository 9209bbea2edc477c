"""Leader elections and partition reassignments. The controller serves all of these requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plog.client.admin.base import AdminBase
from plog.client.admin.records import by_topic
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.client.admin.values import Reassignment
from plog.enums import ElectionType
from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from plog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


class PartitionAdmin(AdminBase):
    """The operations on partition leaders and replicas."""

    async def elect_leaders(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> Results[TopicPartition, None]:
        """Elect leaders for `partitions`, by default for all partitions that need an election.

        Errors, per partition: ElectionNotNeeded, PreferredLeaderNotAvailable,
        EligibleLeadersNotAvailable, UnknownTopicOrPartition.
        """
        response = await self._cluster.ask_controller(
            elect_leaders_request(kind, partitions, timeout_ms=self._request_timeout_ms),
            ElectLeadersResponse,
            # The controller may have moved since the last metadata refresh.
            retry_on=lambda answer: answer.error_code == ErrorCode.NOT_CONTROLLER,
        )
        # This error applies to the whole request; each partition also has an outcome of its own.
        raise_if_error(response.error_code, None, "the elections")
        return Results(elected_leaders(response))

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Results[TopicPartition, None]:
        """Start moving each partition to a list of brokers, preferred leader first.

        None instead of a list cancels a reassignment in progress. Errors, per partition:
        InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition, ...
        """
        request = alter_partition_reassignments_request(
            replicas,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=self._request_timeout_ms,
        )
        response = await self._cluster.ask_controller(
            request,
            AlterPartitionReassignmentsResponse,
            retry_on=lambda answer: answer.error_code == ErrorCode.NOT_CONTROLLER,
        )
        raise_if_error(response.error_code, response.error_message, "the reassignments")
        return Results(altered_reassignments(response))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress for `partitions`, by default for all partitions."""
        # A request without topics lists all reassignments (KIP-455).
        request = ListPartitionReassignmentsRequest(timeout_ms=self._request_timeout_ms)
        if partitions is not None:
            request.topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        response = await self._cluster.ask_controller(
            request,
            ListPartitionReassignmentsResponse,
            retry_on=lambda answer: answer.error_code == ErrorCode.NOT_CONTROLLER,
        )
        raise_if_error(response.error_code, response.error_message, "the reassignments")
        return listed_reassignments(response)


# -- requests ---------------------------------------------------------------------------------


def elect_leaders_request(
    kind: ElectionType, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> ElectLeadersRequest:
    """Return the request to elect leaders."""
    # None requests elections for all partitions that need an election (KIP-460).
    topics = None
    if partitions is not None:
        topics = [
            TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=timeout_ms)


def alter_partition_reassignments_request(
    replicas: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool,
    timeout_ms: int,
) -> AlterPartitionReassignmentsRequest:
    """Return the request to start or cancel reassignments."""

    def wanted(partition: TopicPartition) -> ReassignablePartition:
        brokers = replicas[partition]
        return ReassignablePartition(
            partition_index=partition.partition,
            # KIP-455: null cancels a reassignment in progress.
            replicas=None if brokers is None else list(brokers),
        )

    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        # If false, the controller rejects a list with a different number of replicas (KIP-860).
        allow_replication_factor_change=allow_replication_factor_change,
        topics=[
            ReassignableTopic(
                name=topic, partitions=[wanted(TopicPartition(topic, n)) for n in numbers]
            )
            for topic, numbers in by_topic(replicas).items()
        ],
    )


# -- responses --------------------------------------------------------------------------------


def elected_leaders(response: ElectLeadersResponse) -> dict[TopicPartition, KafkaError | None]:
    """Return the outcome of each election."""
    return {
        TopicPartition(topic.topic, result.partition_id): outcome(
            result.error_code,
            result.error_message,
            f"{topic.topic}-{result.partition_id}",
            None,
        )
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def altered_reassignments(
    response: AlterPartitionReassignmentsResponse,
) -> dict[TopicPartition, KafkaError | None]:
    """Return the outcome for each partition."""
    return {
        TopicPartition(topic.name, result.partition_index): outcome(
            result.error_code,
            result.error_message,
            f"{topic.name}-{result.partition_index}",
            None,
        )
        for topic in response.responses
        for result in topic.partitions
    }


def listed_reassignments(
    response: ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress."""
    return {
        TopicPartition(topic.name, moving.partition_index): Reassignment(
            replicas=tuple(moving.replicas),
            adding_replicas=tuple(moving.adding_replicas),
            removing_replicas=tuple(moving.removing_replicas),
        )
        for topic in response.topics
        for moving in topic.partitions
    }
