"""Create and delete topics, and add partitions; topic_descriptions.py lists and describes topics.

The controller serves these requests. The functions after the class do not perform I/O: they convert
values into requests, and responses into values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plog.client.admin.argument_checks import ConfigValue, config_text
from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome, several
from plog.client.admin.routing import is_throttled, settle
from plog.client.admin.values import ConfigEntry, CreatedTopic, NewPartitions, NewTopic, topic_id_of
from plog.enums import ConfigSource
from plog.errors import ErrorCode, InvalidRequest, KafkaError, UnsupportedVersion
from plog.types import ZERO_UUID, Uuid, uuid_to_text
from plog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

# -1 selects the broker's default (KIP-464).
_BROKER_DEFAULT = -1
# The first version of DeleteTopics that accepts topic ids (KIP-516).
_FIRST_DELETION_BY_ID = 6
# Brokers before Kafka 2.4 do not return the counts (KIP-525).
_NOT_RETURNED = -1


class TopicAdmin(AdminBase):
    """The operations that change topics; a topic to delete can also be identified by its id."""

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> Results[str, CreatedTopic]:
        """Create topics; with `validate_only`, only check whether they could be created.

        A string creates a topic with the broker's defaults. Errors, per topic: TopicAlreadyExists,
        InvalidReplicationFactor, InvalidPartitions, InvalidConfig, ...
        """
        new = [NewTopic(name=topic) if isinstance(topic, str) else topic for topic in _each(topics)]
        by_name = {topic.name: topic for topic in new}
        # The outcomes are keyed by name, so a duplicate would make them ambiguous.
        if len(by_name) < len(new):
            raise InvalidRequest("cannot create topics: a topic is listed more than once")

        async def ask(names: list[str]) -> Mapping[str, CreatedTopic | KafkaError]:
            request = create_topics_request(
                [by_name[name] for name in names],
                timeout_ms=self._request_timeout_ms,
                validate_only=validate_only,
            )
            return created_topics(
                await self._cluster.ask_controller(
                    request,
                    CreateTopicsResponse,
                    # The response reports NOT_CONTROLLER for each topic, not once for the request.
                    retry_on=lambda answer: _not_controller(x.error_code for x in answer.topics),
                )
            )

        return await settle(self._cluster, by_name, ask, is_throttled)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, ConfigValue] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create one topic. Raises the error that `create_topics` returns.

        Values in `configs` are strings, numbers or bools: ``{"retention.ms": 5}``.
        """
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignments=assignments,
            configs=configs or {},
        )
        return (await self.create_topics([topic], validate_only=validate_only)).get(name)

    async def delete_topics(self, topics: Iterable[str | Uuid]) -> Results[str | Uuid, None]:
        """Delete topics. Errors: UnknownTopicOrPartition, UnknownTopicId, ..."""

        async def ask(names: list[str | Uuid]) -> Mapping[str | Uuid, KafkaError | None]:
            # Older controllers do not accept ids, so the request depends on the version.
            version = await self._version_at_controller(DeleteTopicsRequest)
            request = delete_topics_request(
                names, version=version, timeout_ms=self._request_timeout_ms
            )
            return deleted_topics(
                await self._cluster.ask_controller(
                    request,
                    DeleteTopicsResponse,
                    retry_on=lambda answer: _not_controller(x.error_code for x in answer.responses),
                )
            )

        return await settle(self._cluster, topics, ask, is_throttled)

    async def delete_topic(self, topic: str | Uuid) -> None:
        """Delete one topic. Raises the error that `delete_topics` returns."""
        (await self.delete_topics([topic])).get(topic)

    async def create_partitions(
        self, totals: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Increase topics to new total partition counts. Errors: InvalidPartitions, ..."""

        async def ask(names: list[str]) -> Mapping[str, KafkaError | None]:
            request = create_partitions_request(
                {name: totals[name] for name in names},
                timeout_ms=self._request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._cluster.ask_controller(
                request,
                CreatePartitionsResponse,
                retry_on=lambda answer: _not_controller(x.error_code for x in answer.results),
            )
            return {
                result.name: outcome(
                    result.error_code, result.error_message, f"topic {result.name}", None
                )
                for result in response.results
            }

        return await settle(self._cluster, totals, ask, is_throttled)


def _each(topics: Iterable[NewTopic | str]) -> Iterable[NewTopic | str]:
    # For a string, `several` raises TypeError; otherwise, each letter would become a topic.
    return several(topics) if isinstance(topics, str) else topics


def _not_controller(codes: Iterable[int]) -> bool:
    return ErrorCode.NOT_CONTROLLER in codes


# -- requests ---------------------------------------------------------------------------------


def create_topics_request(
    topics: Iterable[NewTopic], *, timeout_ms: int, validate_only: bool
) -> CreateTopicsRequest:
    """Return the request to create `topics`."""
    return CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    if topic.assignments is not None and (topic.partitions or topic.replication_factor):
        raise InvalidRequest(
            f"cannot create topic {topic.name}: it contains both assignments and a partition or"
            " replica count; specify only one of them"
        )
    partitions, replicas = topic.partitions, topic.replication_factor
    return CreatableTopic(
        name=topic.name,
        num_partitions=_BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=_BROKER_DEFAULT if replicas is None else replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (topic.assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=config_text(value))
            for name, value in topic.configs.items()
        ],
    )


def delete_topics_request(
    topics: Iterable[str | Uuid], *, version: int, timeout_ms: int
) -> DeleteTopicsRequest:
    """Return the request to delete `topics`. Raises UnsupportedVersion for ids before Kafka 2.8."""
    if version >= _FIRST_DELETION_BY_ID:
        return DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=topic)
                if isinstance(topic, str)
                else DeleteTopicState(topic_id=topic)
                for topic in topics
            ],
            timeout_ms=timeout_ms,
        )
    names = []
    for topic in topics:
        if not isinstance(topic, str):
            raise UnsupportedVersion(
                "cannot delete a topic by id: the broker does not support it; use the topic name"
            )
        names.append(topic)
    return DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)


def create_partitions_request(
    totals: Mapping[str, int | NewPartitions], *, timeout_ms: int, validate_only: bool
) -> CreatePartitionsRequest:
    """Return the request to increase partition counts."""
    wanted = {
        name: NewPartitions(total=total) if isinstance(total, int) else total
        for name, total in totals.items()
    }
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                # Kafka's `count` is the new total, not the number of partitions to add.
                count=new.total,
                assignments=None
                if new.assignments is None
                else [CreatePartitionsAssignment(broker_ids=list(x)) for x in new.assignments],
            )
            for name, new in wanted.items()
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


# -- responses --------------------------------------------------------------------------------


def created_topics(response: CreateTopicsResponse) -> dict[str, CreatedTopic | KafkaError]:
    """Return the outcome for each topic."""
    return {
        topic.name: outcome(
            topic.error_code, topic.error_message, f"topic {topic.name}", _created(topic)
        )
        for topic in response.topics
    }


def _created(topic: CreatableTopicResult) -> CreatedTopic:
    # A client that may create topics is not necessarily authorized to read configs (KIP-525).
    hidden = topic.configs is None or topic.topic_config_error_code
    return CreatedTopic(
        name=topic.name,
        topic_id=topic_id_of(topic.topic_id),
        partitions=None if topic.num_partitions == _NOT_RETURNED else topic.num_partitions,
        replication_factor=None
        if topic.replication_factor == _NOT_RETURNED
        else topic.replication_factor,
        configs=None
        if hidden
        else {
            config.name: ConfigEntry(
                name=config.name,
                value=config.value,
                source=ConfigSource(config.config_source),
                is_sensitive=config.is_sensitive,
                is_read_only=config.read_only,
            )
            for config in topic.configs or ()
        },
    )


def deleted_topics(response: DeleteTopicsResponse) -> dict[str | Uuid, KafkaError | None]:
    """Return the outcome for each topic, keyed both by name and by id."""
    outcomes: dict[str | Uuid, KafkaError | None] = {}
    for topic in response.responses:
        about = f"topic {topic.name or uuid_to_text(topic.topic_id)}"
        result = outcome(topic.error_code, topic.error_message, about, None)
        # The response may contain both name and id, and the caller may have passed either.
        if topic.name:
            outcomes[topic.name] = result
        if topic.topic_id != ZERO_UUID:
            outcomes[topic.topic_id] = result
    return outcomes
