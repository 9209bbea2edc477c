"""Requests of replicas to their leader: on which listener, and what they get."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from plogd.quota import QuotaEntity
from plogd.replica.offset_lookup import LATEST
from tests.helpers.sim.sim_broker import Asked, SimBroker, connection
from tests.helpers.sim.sim_cluster import SimCluster

OUTSIDE = connection("OUTSIDE")


class Site:
    """Broker 1 leads a partition; broker 2 follows it, but is cut off; the test is broker 2."""

    def __init__(self) -> None:
        self.cluster = SimCluster(2)
        self.cluster.create("t", [1, 2])
        self.cluster.cut(1, 2)
        self.broker: SimBroker = self.cluster.brokers[1]
        self.produce(b"a")

    def produce(self, *values: bytes) -> None:
        self.cluster.produce(*values, acks=1)
        self.cluster.settle()

    def begin(
        self,
        version: int = 17,
        *,
        offset: int = 0,
        last_epoch: int = -1,
        broker_epoch: int = 21,
        client: Any = None,
        **fields: Any,
    ) -> Asked:
        """Start a Fetch of broker 2."""
        replica = (
            {"replica_state": ReplicaState(replica_id=2, replica_epoch=broker_epoch)}
            if version >= 15
            else {"replica_id": 2}
        )
        partition = FetchPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=0,
            last_fetched_epoch=last_epoch if version >= 12 else -1,
            partition_max_bytes=1 << 20,
        )
        names = {"topic_id": self.cluster.topic_ids["t"]} if version >= 13 else {"topic": "t"}
        request = FetchRequest(
            topics=[FetchTopic(partitions=[partition], **names)],
            **({"min_bytes": 1, "max_bytes": 1 << 20} | replica | fields),  # type: ignore[arg-type]
        )
        return self.broker.begin(request, version, connection=client)

    def fetch(self, version: int = 17, **more: Any) -> Any:
        """Return the partition of the response to a Fetch of broker 2."""
        asked = self.begin(version, **more)
        self.cluster.settle()
        return asked.response().responses[0].partitions[0]


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("version", [11, 12, 13, 14, 15, 17])
def test_follower_reads_uncommitted_records_and_acknowledges_them(site: Site, version: int) -> None:
    read = site.fetch(version)
    assert (read.error_code, read.high_watermark) == (0, 0)
    assert len(read.records) > 0
    assert site.cluster.high_watermarks()[1] == 0
    read = site.fetch(version, offset=1)
    assert (read.error_code, len(read.records)) == (0, 0)
    assert site.cluster.high_watermarks()[1] == 1


@pytest.mark.parametrize("version", [11, 17])
def test_fetch_by_a_replica_is_rejected_on_other_listeners(site: Site, version: int) -> None:
    asked = site.begin(version, offset=1, client=OUTSIDE)
    response = asked.response()
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    codes = [one.error_code for topic in response.responses for one in topic.partitions]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert site.cluster.high_watermarks()[1] == 0, "it does not acknowledge anything"


def test_consumer_is_served_on_other_listeners(site: Site) -> None:
    site.fetch(offset=1)
    read = site.broker.ask(
        FetchRequest(
            max_bytes=1 << 20,
            topics=[
                FetchTopic(
                    topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
                )
            ],
        ),
        12,
        connection=OUTSIDE,
    )
    assert len(read.responses[0].partitions[0].records) > 0


def test_fetch_waits_for_records_and_not_for_the_high_watermark(site: Site) -> None:
    waiting = site.begin(offset=1, max_wait_ms=500)
    site.cluster.settle()
    assert not waiting.is_done
    assert site.cluster.high_watermarks()[1] == 1
    site.produce(b"b")
    assert waiting.is_done
    [partition] = waiting.response().responses[0].partitions
    assert (partition.high_watermark, len(partition.records) > 0) == (1, True)


def test_fetch_waits_for_min_bytes(site: Site) -> None:
    waiting = site.begin(offset=1, max_wait_ms=500, min_bytes=1000)
    site.produce(b"b")
    assert not waiting.is_done
    site.produce(b"c" * 1000)
    assert waiting.is_done
    assert waiting.response()
    late = site.begin(offset=3, max_wait_ms=500, min_bytes=1000)
    site.cluster.advance(499)
    assert not late.is_done
    site.cluster.advance(20)
    assert late.is_done
    assert late.response()


def test_follower_with_another_history_gets_the_diverging_epoch(site: Site) -> None:
    read = site.fetch(offset=5, last_epoch=0)
    assert (read.error_code, len(read.records)) == (0, 0)
    assert (read.diverging_epoch.epoch, read.diverging_epoch.end_offset) == (0, 1)
    assert site.cluster.high_watermarks()[1] == 0


def test_follower_has_a_fetch_session(site: Site) -> None:
    first = site.begin(session_epoch=0)
    response = first.response()
    assert response.session_id > 0
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=21),
        max_bytes=1 << 20,
        session_id=response.session_id,
        session_epoch=1,
    )
    again = site.broker.ask(request, 17)
    assert [one.partition_index for topic in again.responses for one in topic.partitions] == [0]


def test_fetch_of_an_earlier_registration_is_not_counted(site: Site) -> None:
    site.fetch(broker_epoch=22)
    read = site.fetch(broker_epoch=21, offset=1)
    assert read.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site.cluster.high_watermarks()[1] == 0


def test_quota_does_not_apply_to_followers(site: Site) -> None:
    entity = QuotaEntity(client_id="test")
    site.broker.broker.quotas.update(entity, {"consumer_byte_rate": 1.0})
    site.produce(b"x" * 100_000)
    for _ in range(3):
        asked = site.begin()
        response = asked.response()
        assert response.throttle_time_ms == 0
        assert len(response.responses[0].partitions[0].records) > 100_000


def list_offsets(site: Site, *, replica_id: int, client: Any = None) -> Any:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    return site.broker.ask(request, 9, connection=client).topics[0].partitions[0]


def test_latest_offset_of_a_replica_is_the_log_end_offset(site: Site) -> None:
    assert list_offsets(site, replica_id=2).offset == 1
    assert list_offsets(site, replica_id=-1).offset == 0
    refused = list_offsets(site, replica_id=2, client=OUTSIDE)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert list_offsets(site, replica_id=-1, client=OUTSIDE).offset == 0


def test_replica_id_of_a_client_is_ignored_by_a_single_broker(site: Site) -> None:
    site.broker.broker.cluster_replicas = None
    assert list_offsets(site, replica_id=0, client=OUTSIDE).offset == 0


@pytest.mark.parametrize("replica_id", [-1, 2])
def test_end_of_an_epoch_is_the_same_for_replicas_and_consumers(
    site: Site, replica_id: int
) -> None:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=replica_id,
        topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])],
    )
    [found] = site.broker.ask(request, 4).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 1)


def test_broker_that_does_not_lead_rejects_fetches_of_replicas(site: Site) -> None:
    site.cluster.change(leader=2, leader_epoch=1)
    site.cluster.send(1, site.cluster.leader_and_isr(1, [TopicPartition("t", 0)]))
    site.cluster.advance(50)
    assert site.fetch().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
