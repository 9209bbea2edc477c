"""Records of `__consumer_offsets` for group types that plog does not coordinate.

The types are consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071). plog
does not write these records, but its tools print them if a Kafka log contains them. Keys have
version 0; `NEWER_GROUP_RECORDS` maps the number before the key to the declarations of key and
value.
Source: Kafka 4.3 group-coordinator messages.
"""

from __future__ import annotations

from typing import Final

from plog.wire.schema import Message, Struct, field, int8, int16, int32, int64, uint16, uuid


class GroupKey(Message, versions="0"):
    """The key of a group's record."""

    group_id: str = field()


class MemberKey(Message, versions="0"):
    """The key of a member's record."""

    group_id: str = field()
    member_id: str = field()


class AssignedTopic(Struct):
    """Partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[int32] = field()


class AssignedTopicWithEpochs(Struct):
    """Partitions of one topic, and the member epochs in which the partitions were assigned."""

    topic_id: uuid = field()
    partitions: list[int32] = field()
    assignment_epochs: list[int32] | None = field(tag=0, default=None)


class TargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """The group epoch for which the target assignment was computed, and the time."""

    assignment_epoch: int32 = field()
    assignment_timestamp: int64 = field(tag=0, ignorable=True)


# -- consumer groups ---------------------------------------------------------------------------


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The epoch of a consumer group, and a hash of its subscribed topics."""

    epoch: int32 = field()
    # Tagged, because Kafka 4.0 wrote this record without a hash (KIP-1101).
    metadata_hash: int64 = field(tag=0)


class PartitionMetadata(Struct):
    """A partition and the racks of its replicas."""

    partition: int32 = field()
    racks: list[str] = field()


class TopicMetadata(Struct):
    """A topic that a group subscribes to."""

    topic_id: uuid = field()
    topic_name: str = field()
    num_partitions: int32 = field()
    partition_metadata: list[PartitionMetadata] = field()


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The topics that a group subscribes to; Kafka 4.1 and later do not write this record."""

    topics: list[TopicMetadata] = field()


class ClassicProtocol(Struct):
    """An assignor, and the member's metadata for it."""

    name: str = field()
    metadata: bytes = field()


class ClassicMemberMetadata(Struct):
    """Additional fields of a member that uses the classic protocol."""

    session_timeout_ms: int32 = field()
    supported_protocols: list[ClassicProtocol] = field()


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member and its subscription."""

    instance_id: str | None = field()
    rack_id: str | None = field()
    client_id: str = field()
    client_host: str = field()
    subscribed_topic_names: list[str] = field()
    subscribed_topic_regex: str | None = field()
    rebalance_timeout_ms: int32 = field(default=-1)
    server_assignor: str | None = field()
    # Set while the member uses the classic protocol, during an online migration (KIP-848).
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


class TargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[AssignedTopic] = field()


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """The current assignment of a member, and the partitions it must revoke."""

    member_epoch: int32 = field()
    previous_member_epoch: int32 = field()
    state: int8 = field()
    assigned_partitions: list[AssignedTopicWithEpochs] = field()
    # The coordinator gives these partitions to another member only after this one revokes them.
    partitions_pending_revocation: list[AssignedTopicWithEpochs] = field()


class RegularExpressionKey(Message, versions="0"):
    """The key of a pattern that members of a group subscribe to."""

    group_id: str = field()
    regular_expression: str = field()


class RegularExpressionValue(Message, versions="0", flexible="0+"):
    """The topics that match a pattern."""

    topics: list[str] = field()
    version: int64 = field()
    timestamp: int64 = field()


# -- share groups ------------------------------------------------------------------------------


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member and its subscription."""

    rack_id: str | None = field()
    client_id: str = field()
    client_host: str = field()
    subscribed_topic_names: list[str] = field()


class GroupEpochValue(Message, versions="0", flexible="0+"):
    """The epoch of a share group, and a hash of its subscribed topics."""

    epoch: int32 = field()
    metadata_hash: int64 = field()


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """The current assignment of a member."""

    member_epoch: int32 = field()
    previous_member_epoch: int32 = field()
    state: int8 = field()
    assigned_partitions: list[AssignedTopic] = field()


class SharedTopic(Struct):
    """Partitions of a topic with share-group state."""

    topic_id: uuid = field()
    topic_name: str = field()
    partitions: list[int32] = field()


class DeletedTopic(Struct):
    """A topic whose state is being deleted."""

    topic_id: uuid = field()
    topic_name: str = field()


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The partitions for which a share group has state."""

    initializing_topics: list[SharedTopic] = field()
    initialized_topics: list[SharedTopic] = field()
    deleting_topics: list[DeletedTopic] = field()


# -- streams groups ----------------------------------------------------------------------------


class KeyValue(Struct):
    """A name and its value."""

    key: str = field()
    value: str = field()


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The epochs of a group."""

    epoch: int32 = field()
    metadata_hash: int64 = field()
    validated_topology_epoch: int32 = field(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = field(tag=1, default=None)


class StreamsEndpoint(Struct):
    """The address of an application's instance."""

    host: str = field()
    port: uint16 = field()


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member of an application."""

    instance_id: str | None = field()
    rack_id: str | None = field()
    client_id: str = field()
    client_host: str = field()
    rebalance_timeout_ms: int32 = field(default=-1)
    topology_epoch: int32 = field()
    process_id: str = field()
    # Set if the application serves interactive queries (its setting application.server).
    user_endpoint: StreamsEndpoint | None = field(default=None)
    client_tags: list[KeyValue] = field()


class TaskIds(Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = field()
    partitions: list[int32] = field()


class TaskIdsWithEpochs(Struct):
    """Tasks of one subtopology, and the member epochs in which they were assigned."""

    subtopology_id: str = field()
    partitions: list[int32] = field()
    assignment_epochs: list[int32] | None = field(tag=0, default=None)


class StreamsGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """The target assignment of a member's tasks."""

    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


class StreamsGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """The current tasks of a member, and the tasks it must revoke."""

    member_epoch: int32 = field()
    previous_member_epoch: int32 = field()
    state: int8 = field()
    active_tasks: list[TaskIdsWithEpochs] = field()
    standby_tasks: list[TaskIdsWithEpochs] = field()
    warmup_tasks: list[TaskIdsWithEpochs] = field()
    active_tasks_pending_revocation: list[TaskIdsWithEpochs] = field()
    standby_tasks_pending_revocation: list[TaskIdsWithEpochs] = field()
    warmup_tasks_pending_revocation: list[TaskIdsWithEpochs] = field()


class StreamsTopic(Struct):
    """An internal topic that an application creates."""

    name: str = field()
    partitions: int32 = field()
    replication_factor: int16 = field()
    topic_configs: list[KeyValue] = field()


class CopartitionGroup(Struct):
    """Topics with the same number of partitions, by their indexes in a `Subtopology`'s lists."""

    source_topics: list[int16] = field()
    source_topic_regex: list[int16] = field()
    repartition_source_topics: list[int16] = field()


class Subtopology(Struct):
    """A subtopology of an application."""

    subtopology_id: str = field()
    source_topics: list[str] = field()
    source_topic_regex: list[str] = field()
    state_changelog_topics: list[StreamsTopic] = field()
    repartition_sink_topics: list[str] = field()
    repartition_source_topics: list[StreamsTopic] = field()
    copartition_groups: list[CopartitionGroup] = field()


class StreamsGroupTopologyValue(Message, versions="0", flexible="0+"):
    """The topology of an application."""

    epoch: int32 = field()
    subtopologies: list[Subtopology] = field()


NEWER_GROUP_RECORDS: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    3: (GroupKey, ConsumerGroupMetadataValue),
    4: (GroupKey, ConsumerGroupPartitionMetadataValue),
    5: (MemberKey, ConsumerGroupMemberMetadataValue),
    6: (GroupKey, TargetAssignmentMetadataValue),
    7: (MemberKey, TargetAssignmentMemberValue),
    8: (MemberKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (MemberKey, ShareGroupMemberMetadataValue),
    11: (GroupKey, GroupEpochValue),
    # Share groups and streams groups share these classes, because Kafka's layouts are the same.
    12: (GroupKey, TargetAssignmentMetadataValue),
    13: (MemberKey, TargetAssignmentMemberValue),
    14: (MemberKey, ShareGroupCurrentMemberAssignmentValue),
    15: (GroupKey, ShareGroupStatePartitionMetadataValue),
    16: (RegularExpressionKey, RegularExpressionValue),
    17: (GroupKey, StreamsGroupMetadataValue),
    19: (MemberKey, StreamsGroupMemberMetadataValue),
    20: (GroupKey, TargetAssignmentMetadataValue),
    21: (MemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (MemberKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (GroupKey, StreamsGroupTopologyValue),
}
"""Key and value classes by record type."""
NEWER_GROUP_MESSAGES: Final[tuple[type[Message], ...]] = tuple(
    # Several record types have the same class, which must occur only once.
    dict.fromkeys(message for pair in NEWER_GROUP_RECORDS.values() for message in pair)
)
