"""The topic of audit reports: its creation, and the search for its leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plog.audit import AUDIT_TOPIC, AuditReport
from plog.client.errors import BrokenAnswer, BrokerNotAvailable
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.producer.audit_topic import AuditTopic
from plog.errors import (
    ErrorCode,
    InvalidReplicationFactor,
    LeaderNotAvailable,
    NotEnoughReplicas,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from plog.hashing import partition_for_key
from plog.wire.messages.create_topics import CreateTopicsRequest
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.messages.produce import ProduceRequest
from plog.wire.schema import ApiMessage
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.producer.producer_site import ProducerSite, ready

REPORT = AuditReport(producer="p", instance="0" * 32, number=1, since_ms=1, until_ms=2)


def write(site: ProducerSite, timeout_s: float = 10) -> AuditTopic:
    topic = AuditTopic(site.cluster)
    site.run(topic.write(REPORT, Deadline(site.sim, timeout_s)))
    return topic


def fail(site: ProducerSite, kind: type[ApiMessage], change: Callable[[Any], None]) -> None:
    """Change the responses to requests of one kind."""

    async def interfere(request: ApiMessage, really: Callable[[], Awaitable[Any]]) -> Any:
        response = await really()
        if isinstance(request, kind):
            change(response)
        return response

    site.sim.interfere = interfere


def configs_of(site: ProducerSite) -> dict[str, str]:
    [request] = [x for x in site.sim.requests if isinstance(x, CreateTopicsRequest)]
    return {config.name: config.value or "" for config in request.topics[0].configs}


@pytest.mark.parametrize("creates", [True, False])
def test_missing_topic_is_created_with_its_configs(creates: bool) -> None:
    site = ready(broker={"auto_create_topics_enable": creates})
    write(site)
    assert len(site.records(topic=AUDIT_TOPIC)) == 1
    assert configs_of(site) == {"cleanup.policy": "delete", "retention.ms": "1209600000"}
    log = site.sim.broker.log(AUDIT_TOPIC)
    assert log.config.retention_ms == 1_209_600_000


def test_existing_topic_is_used_unchanged() -> None:
    site = ready()
    create_topic(site.sim.broker, AUDIT_TOPIC, 3)
    write(site)
    partition = partition_for_key(REPORT.key, 3)
    assert len(site.records(partition, AUDIT_TOPIC)) == 1
    assert not any(isinstance(request, CreateTopicsRequest) for request in site.sim.requests)


def test_topic_that_another_producer_creates_is_used() -> None:
    site = ready()

    def change(response: Any) -> None:
        response.topics[0].error_code = ErrorCode.TOPIC_ALREADY_EXISTS

    fail(site, CreateTopicsRequest, change)
    write(site)
    assert len(site.records(topic=AUDIT_TOPIC)) == 1


def test_leader_is_remembered_between_reports() -> None:
    site = ready()
    topic = write(site)
    known = len([x for x in site.sim.requests if isinstance(x, MetadataRequest)])
    site.run(topic.write(REPORT, Deadline(site.sim, 10)))
    assert len([x for x in site.sim.requests if isinstance(x, MetadataRequest)]) == known
    assert len(site.records(topic=AUDIT_TOPIC)) == 2


def test_failed_creation_raises_the_error_of_the_broker() -> None:
    site = ready()

    def change(response: Any) -> None:
        response.topics[0].error_code = ErrorCode.INVALID_REPLICATION_FACTOR
        response.topics[0].error_message = None

    fail(site, CreateTopicsRequest, change)
    with pytest.raises(InvalidReplicationFactor, match="cannot create topic _plog_audit: "):
        write(site)


def test_permanent_error_of_the_topic_is_raised_immediately() -> None:
    site = ready()

    def change(response: Any) -> None:
        response.topics[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    fail(site, MetadataRequest, change)
    with pytest.raises(TopicAuthorizationFailed, match="topic _plog_audit: "):
        write(site)


def test_topic_without_leader_is_awaited_until_the_deadline() -> None:
    site = ready()
    create_topic(site.sim.broker, AUDIT_TOPIC)

    def change(response: Any) -> None:
        response.topics[0].partitions[0].leader_id = -1

    fail(site, MetadataRequest, change)
    begun_s = site.sim.now_s()
    with pytest.raises((LeaderNotAvailable, RequestTimedOut)):
        write(site, 5)
    assert 4 <= site.sim.now_s() - begun_s <= 6


def test_error_of_a_report_makes_the_next_report_search_the_leader_again() -> None:
    site = ready()
    topic = write(site)

    def change(response: Any) -> None:
        response.responses[0].partition_responses[0].error_code = ErrorCode.NOT_ENOUGH_REPLICAS

    fail(site, ProduceRequest, change)
    with pytest.raises(NotEnoughReplicas, match="topic _plog_audit: "):
        site.run(topic.write(REPORT, Deadline(site.sim, 10)))
    site.sim.interfere = None
    known = len([x for x in site.sim.requests if isinstance(x, MetadataRequest)])
    site.run(topic.write(REPORT, Deadline(site.sim, 10)))
    assert len([x for x in site.sim.requests if isinstance(x, MetadataRequest)]) == known + 1


def test_response_without_partitions_is_malformed() -> None:
    site = ready()
    fail(site, ProduceRequest, lambda response: response.responses.clear())
    with pytest.raises(BrokenAnswer, match="does not contain any partition"):
        write(site)


def test_client_that_does_not_know_a_broker_cannot_write() -> None:
    site = ready()
    topic = AuditTopic(Cluster(site.sim, site.settings))
    with pytest.raises(BrokerNotAvailable):
        site.run(topic.write(REPORT, Deadline(site.sim, 1)))


def test_closed_topic_has_no_open_connection() -> None:
    site = ready()
    before = sum(channel.is_open for channel in site.sim.channels)
    topic = write(site)
    assert sum(channel.is_open for channel in site.sim.channels) == before + 1
    topic.close()
    assert sum(channel.is_open for channel in site.sim.channels) == before
