"""Attacks with very many topics, very many partitions, or very small segments."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.attack.conftest import Attack
from tests.attack.frames import create_topic, produce, response_size, small_batch
from tests.attack.target import Target
from tests.fault.peers import Peer, request_frame

_NAMED = [f"auto-{number}" for number in range(1_200)]
_TOPIC = 2


def _metadata(names: list[str]) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True)


def test_metadata_that_creates_1200_topics(target: Target, attack: Attack) -> None:
    with attack(), target.connect() as peer:
        response_size(peer, request_frame(_metadata(_NAMED), 9))


def test_metadata_of_all_topics_on_50_connections(target: Target, attack: Attack) -> None:
    """No connection reads its response, which lists thousands of partitions."""
    create_topic(target, "wide", 2_000)
    frame = request_frame(MetadataRequest(topics=None), 9)
    with attack(), ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(target.connect(receive_buffer=4096)).send(frame)
        with target.connect() as other:
            response_size(other, frame)


def test_describe_configs_of_250_topics_with_documentation(target: Target, attack: Attack) -> None:
    names = _create_many(target)
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=name) for name in names
    ]
    for resource in resources:
        resource.configuration_keys = None
    request = DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=True
    )
    with attack(), target.connect() as peer:
        response_size(peer, request_frame(request, 4))


def _create_many(target: Target) -> list[str]:
    names = [f"many-{number}" for number in range(250)]
    with target.connect() as peer:
        _ask_to_create(peer, names, 1)
    return names


def _ask_to_create(peer: Peer, names: list[str], partitions: int, **fields: bool) -> int | None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=60_000, **fields)
    return response_size(peer, request_frame(request, 7))


def test_create_topics_validates_10000(target: Target, attack: Attack) -> None:
    with attack(), target.connect() as peer:
        _ask_to_create(peer, [f"valid-{n}" for n in range(10_000)], 1, validate_only=True)


@pytest.mark.parametrize(
    "partitions",
    [2_000, pytest.param(100_000, marks=pytest.mark.long), (1 << 31) - 1],
)
def test_create_topic_with_very_many_partitions(
    target: Target, attack: Attack, partitions: int
) -> None:
    with attack(), target.connect() as peer:
        _ask_to_create(peer, [f"wide-{partitions}"], partitions)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.index.bytes", "4"),
        pytest.param("segment.ms", "1", marks=pytest.mark.long),
        pytest.param("index.interval.bytes", "0", marks=pytest.mark.long),
    ],
)
def test_tiny_segments_under_a_limit_of_descriptors(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, value: str
) -> None:
    """Logs open files per segment; descriptors for clients and the metadata log are reserved."""
    with Target(tmp_path, descriptors=600) as target:
        create_topic(target, "before", 2)
        create_topic(target, "tiny", config={name: value})
        with target.attack(request, topic="before"), target.connect() as peer:
            for _ in range(700):
                produce(peer, "tiny", small_batch())
            _assert_new_clients_are_served(target)
        _delete(target, ["tiny"])
        with target.attack(request, f"{name}={value}, after its topic was deleted"):
            pass


def test_auto_creation_under_a_limit_of_descriptors(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with Target(tmp_path, descriptors=1_000) as target:
        create_topic(target, "before", 2)
        with target.attack(request, topic="before"), target.connect() as peer:
            response_size(peer, request_frame(_metadata(_NAMED), 9))
            _assert_new_clients_are_served(target)


def _assert_new_clients_are_served(target: Target) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(target.connect()).ping()


def _delete(target: Target, names: list[str]) -> None:
    topics = [DeleteTopicState(name=name) for name in names]
    with target.connect() as peer:
        peer.request(DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6)
