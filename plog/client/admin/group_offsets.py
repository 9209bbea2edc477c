"""List, alter and delete groups' committed offsets; groups.py manages the groups.

Each group's coordinator serves these requests. An alteration is a commit without a generation,
which the coordinator accepts only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from plog.client.admin.base import AdminBase
from plog.client.admin.records import by_topic
from plog.client.admin.results import Results, outcome, raise_if_error, several
from plog.client.admin.routing import Answers, ask_coordinator, by_coordinator
from plog.client.values import OffsetAndMetadata
from plog.errors import ErrorCode, KafkaError, NonEmptyGroup
from plog.types import TopicPartition
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from plog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

# The first version of OffsetFetch that accepts many groups (KIP-709).
_FIRST_BATCH = 8
_NO_OFFSET = -1
_UNKNOWN_EPOCH = -1


class GroupOffsetAdmin(AdminBase):
    """The operations on committed offsets."""

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Collection[TopicPartition] | None],
        *,
        require_stable: bool = False,
    ) -> Results[str, Results[TopicPartition, OffsetAndMetadata | None]]:
        """Return each group's committed offsets: all, or only those of the given partitions.

        A requested partition without a committed offset is mapped to None. With `require_stable`,
        the call waits for pending transactions that commit offsets.
        """
        wanted: Mapping[str, Collection[TopicPartition] | None]
        wanted = groups if isinstance(groups, Mapping) else dict.fromkeys(several(groups))

        async def ask(
            node_id: int, names: Sequence[str]
        ) -> Answers[str, Results[TopicPartition, OffsetAndMetadata | None]]:
            # Older coordinators accept only one group per request.
            version = (await self._cluster.connection(node_id)).version_of(OffsetFetchRequest)
            listed: dict[str, Results[TopicPartition, OffsetAndMetadata | None] | KafkaError] = {}
            for request in offset_fetch_requests(
                {name: wanted[name] for name in names},
                version=version,
                require_stable=require_stable,
            ):
                response = await self._cluster.ask_node(node_id, request, OffsetFetchResponse)
                listed |= fetched_offsets(request, response)
            return listed

        return await by_coordinator(self._cluster, wanted, ask)

    async def group_offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return one group's committed offsets. Raises the first error."""
        return (await self.list_group_offsets({group: partitions})).get(group).raise_first()

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> Results[TopicPartition, None]:
        """Set committed offsets for a group without members; create the group if it is missing.

        Errors, per partition: NonEmptyGroup, UnknownTopicOrPartition, ...
        """
        # The response reports errors per partition, so an empty request would hide them.
        if not offsets:
            return Results({})

        async def ask(node_id: int) -> Mapping[TopicPartition, KafkaError | None]:
            request = offset_commit_request(group, offsets)
            response = await self._cluster.ask_node(node_id, request, OffsetCommitResponse)
            # OffsetCommit reports a wrong coordinator for each partition. Raise that error: a retry
            # with the right coordinator can succeed.
            return _raise_for_whole(committed_offsets(group, response))

        return Results(await ask_coordinator(self._cluster, group, ask))

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Delete a group's committed offsets for the given partitions.

        Errors, per partition: GroupSubscribedToTopic, UnknownTopicOrPartition. Raises
        GroupIdNotFound, NonEmptyGroup, ...
        """
        listed = list(dict.fromkeys(partitions))

        async def ask(node_id: int) -> Mapping[TopicPartition, KafkaError | None]:
            request = OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in some],
                    )
                    for topic, some in by_topic(listed).items()
                ],
            )
            response = await self._cluster.ask_node(node_id, request, OffsetDeleteResponse)
            raise_if_error(response.error_code, None, f"group {group}")
            return deleted_offsets(response)

        return Results(await ask_coordinator(self._cluster, group, ask))


def _raise_for_whole(
    outcomes: Mapping[TopicPartition, KafkaError | None],
) -> Mapping[TopicPartition, KafkaError | None]:
    """Raise a coordinator error, which OffsetCommit repeats for each partition."""
    for error in outcomes.values():
        if error is not None and error.code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            raise error
    return outcomes


# -- requests ---------------------------------------------------------------------------------


def offset_fetch_requests(
    groups: Mapping[str, Collection[TopicPartition] | None], *, version: int, require_stable: bool
) -> list[OffsetFetchRequest]:
    """Return one request for all groups, or one per group for an older coordinator."""
    # `require_stable` (KIP-447) was added one version before support for many groups (KIP-709).
    stable = require_stable and version >= _FIRST_BATCH - 1
    if version < _FIRST_BATCH:
        return [
            OffsetFetchRequest(
                group_id=group,
                # None requests all partitions; an empty list would request none.
                topics=None
                if partitions is None
                else [
                    OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(partitions).items()
                ],
                require_stable=stable,
            )
            for group, partitions in groups.items()
        ]
    return [
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=None
                    if partitions is None
                    else [
                        OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                        for topic, numbers in by_topic(partitions).items()
                    ],
                )
                for group, partitions in groups.items()
            ],
            require_stable=stable,
        )
    ]


def offset_commit_request(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> OffsetCommitRequest:
    """Return the request to commit `offsets` without a member id and generation."""
    full = {
        partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }

    def requested(partition: TopicPartition) -> OffsetCommitRequestPartition:
        offset = full[partition]
        epoch = offset.leader_epoch
        return OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset.offset,
            committed_leader_epoch=_UNKNOWN_EPOCH if epoch is None else epoch,
            committed_metadata=offset.metadata,
        )

    # Without a member id and generation, a coordinator accepts the commit only for an empty group.
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, partitions=[requested(TopicPartition(topic, n)) for n in numbers]
            )
            for topic, numbers in by_topic(full).items()
        ],
    )


# -- responses --------------------------------------------------------------------------------


def fetched_offsets(
    request: OffsetFetchRequest, response: OffsetFetchResponse
) -> dict[str, Results[TopicPartition, OffsetAndMetadata | None] | KafkaError]:
    """Return the offsets for each group, from a response in any version."""
    # Up to version 7, a request and its response contain only one group.
    if request.group_id:
        found = _offsets((topic.name, topic.partitions) for topic in response.topics)
        about = f"group {request.group_id}"
        return {request.group_id: outcome(response.error_code, None, about, found)}
    return {
        group.group_id: outcome(
            group.error_code,
            None,
            f"group {group.group_id}",
            _offsets((topic.name, topic.partitions) for topic in group.topics),
        )
        for group in response.groups
    }


def _offsets(
    topics: Iterable[
        tuple[str, Sequence[OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    ],
) -> Results[TopicPartition, OffsetAndMetadata | None]:
    offsets: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = {}
    for name, partitions in topics:
        for found in partitions:
            partition = TopicPartition(name, found.partition_index)
            epoch = found.committed_leader_epoch
            committed = OffsetAndMetadata(
                found.committed_offset,
                found.metadata or "",
                None if epoch == _UNKNOWN_EPOCH else epoch,
            )
            offsets[partition] = outcome(
                found.error_code,
                None,
                str(partition),
                None if found.committed_offset == _NO_OFFSET else committed,
            )
    return Results(offsets)


def committed_offsets(
    group: str, response: OffsetCommitResponse
) -> dict[TopicPartition, KafkaError | None]:
    """Return the outcome for each partition."""
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            # The request has no member id, so this error means that the group has members.
            if result.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                outcomes[partition] = NonEmptyGroup(
                    f"cannot set offsets for group {group}: it still has members; stop them first"
                )
            else:
                outcomes[partition] = outcome(result.error_code, None, str(partition), None)
    return outcomes


def deleted_offsets(response: OffsetDeleteResponse) -> dict[TopicPartition, KafkaError | None]:
    """Return the outcome for each partition."""
    return {
        TopicPartition(topic.name, result.partition_index): outcome(
            result.error_code, None, f"{topic.name}-{result.partition_index}", None
        )
        for topic in response.topics
        for result in topic.partitions
    }
