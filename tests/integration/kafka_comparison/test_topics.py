"""Topics and broker metadata compared with Apache Kafka."""

from __future__ import annotations

from typing import Any

from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.helpers.side_by_side import Pair, Side
from tests.integration.kafka_comparison.test_records import NO_ID, create
from tests.integration.kafka_comparison.versions import lowest_and_highest

DIFFERING = ("value", "config_source")
"""Settings that differ: ``flush.messages`` is 1 in plog; Kafka sets ``min.insync.replicas``."""


def new_topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    fields = {"assignments": [], "configs": []} | fields
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


@lowest_and_highest(ApiKey.API_VERSIONS)
def test_api_versions_have_the_same_shape(pair: Pair, version: int) -> None:
    """The APIs and features differ; the shape of the response does not."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    ours, kafkas = pair.ask(request, version)
    assert ours.keys() == kafkas.keys()
    ranges = {
        api["api_key"]: (api["min_version"], api["max_version"]) for api in kafkas["api_keys"]
    }
    for api in ours["api_keys"]:
        first, last = ranges[api["api_key"]]
        assert api["max_version"] <= last
        assert api["min_version"] >= first or api["api_key"] in (ApiKey.DESCRIBE_LOG_DIRS,)


@lowest_and_highest(ApiKey.METADATA)
def test_topic_is_described(pair: Pair, version: int) -> None:
    name = f"metadata-{version}"
    create(pair, name, 3)
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    if version < 4:
        asked.allow_auto_topic_creation = True
    pair.same(asked, version, unordered=["partitions"])


@lowest_and_highest(ApiKey.METADATA, lowest=4)
def test_missing_and_invalid_topics_get_the_same_errors(pair: Pair, version: int) -> None:
    for name in ("nowhere", "not/legal", "", "x" * 300):
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        pair.same(asked, version)


@lowest_and_highest(ApiKey.METADATA, lowest=12)
def test_topic_is_described_by_its_id(pair: Pair, version: int) -> None:
    name = f"by-id-{version}"
    create(pair, name)
    for known in (True, False):

        def asked(side: Side, known: bool = known) -> MetadataRequest:
            topic_id = side.told[name] if known else b"\7" * 16
            return MetadataRequest(
                topics=[MetadataRequestTopic(name=None, topic_id=topic_id)],
                allow_auto_topic_creation=False,
            )

        pair.same(asked, version)


@lowest_and_highest(ApiKey.CREATE_TOPICS)
def test_topics_are_created_or_refused_independently(pair: Pair, version: int) -> None:
    name = f"created-{version}"
    place = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    far = CreatableReplicaAssignment(partition_index=0, broker_ids=[99])
    pair.same(
        CreateTopicsRequest(
            topics=[
                new_topic(name, 2),
                new_topic(f"{name}-placed", -1, -1, assignments=[place]),
                new_topic(f"{name}-misplaced", -1, -1, assignments=[far]),
                new_topic(f"{name}-none", 0),
                new_topic(f"{name}-factor", 1, 5),
                new_topic(f"{name}-zero", 1, 0),
                new_topic("not/legal"),
                new_topic("", 1),
                new_topic("__cluster_metadata"),
                new_topic(f"{name}-config", configs=[CreatableTopicConfig(name="nope", value="1")]),
                new_topic(
                    f"{name}-value",
                    configs=[CreatableTopicConfig(name="retention.ms", value="soon")],
                ),
            ],
        ),
        version,
        unordered=["topics"],
        ignoring=DIFFERING,
    )
    pair.same(CreateTopicsRequest(topics=[new_topic(name)]), version)
    twice = CreateTopicsRequest(topics=[new_topic(f"{name}-t"), new_topic(f"{name}-t")])
    pair.same(twice, version)


@lowest_and_highest(ApiKey.CREATE_TOPICS)
def test_validate_only_creates_nothing(pair: Pair, version: int) -> None:
    name = f"trial-{version}"
    for _ in range(2):
        pair.same(
            CreateTopicsRequest(topics=[new_topic(name)], validate_only=True),
            version,
            ignoring=(
                *DIFFERING,
                "topic_id",
            ),  # Kafka returns an unused id.
        )


@lowest_and_highest(ApiKey.DELETE_TOPICS)
def test_topics_are_deleted_or_refused(pair: Pair, version: int) -> None:
    name = f"deleted-{version}"
    create(pair, name)
    for _ in range(2):
        topics = [DeleteTopicState(name=name, topic_id=NO_ID)] if version >= 6 else []
        pair.same(
            DeleteTopicsRequest(topics=topics, topic_names=[name], timeout_ms=30_000), version
        )


@lowest_and_highest(ApiKey.DELETE_TOPICS, lowest=6)
def test_topics_are_deleted_by_id(pair: Pair, version: int) -> None:
    name = f"deleted-by-id-{version}"
    create(pair, name)

    def asked(side: Side) -> DeleteTopicsRequest:
        by_id = DeleteTopicState(name=None, topic_id=side.told[name])
        return DeleteTopicsRequest(topics=[by_id], timeout_ms=30_000)

    for _ in range(2):
        pair.same(asked, version)


@lowest_and_highest(ApiKey.DESCRIBE_CONFIGS)
def test_topic_settings_are_described(pair: Pair, version: int) -> None:
    """The same names, types, sources and flags; the same values where defaults agree."""
    name = f"configs-{version}"
    create(pair, name)
    asked = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        ],
        include_synonyms=True,
    )
    pair.same(asked, version, ignoring=(*DIFFERING, "synonyms"))


@lowest_and_highest(ApiKey.DESCRIBE_CONFIGS)
def test_missing_resources_get_the_same_errors(pair: Pair, version: int) -> None:
    for kind, name in ((2, "nowhere"), (2, "not/legal"), (4, "99"), (4, "x"), (1, "x"), (77, "")):
        asked = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
            ]
        )
        pair.same(asked, version)
