"""The leaders return the ends of all that they have appended."""

from __future__ import annotations

import pytest

from plog.client.network.connection import Connection
from plog.errors import KafkaError
from plog.spark.sink.log_end_lookup import UNKNOWN_END, log_ends
from plog.types import TopicPartition
from plog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.helpers.client.consumer_site import ConsumerSite


def site_with(*counts: int) -> tuple[ConsumerSite, list[TopicPartition]]:
    """Return a cluster whose topic has `counts` records in its partitions."""
    site = ConsumerSite(default_api_timeout_ms=5000)
    partitions = site.create("t", len(counts))
    for partition, count in zip(partitions, counts, strict=True):
        if count:
            site.produce("t", *[b"x"] * count, partition=partition.partition)
    site.sim.run(site.cluster.refresh({"t"}))
    return site, partitions


def test_ends_of_all_partitions_are_found() -> None:
    site, partitions = site_with(3, 0, 5)
    found = site.sim.run(log_ends(site.cluster, partitions))
    assert list(found.values()) == [3, 0, 5]
    assert site.sim.run(log_ends(site.cluster, [])) == {}


def test_lost_response_is_retried() -> None:
    site, partitions = site_with(3, 4)
    losses = iter(["drop", "lose"])
    site.sim.on_request = lambda request: (
        next(losses, None) if isinstance(request, OffsetForLeaderEpochRequest) else None
    )
    assert list(site.sim.run(log_ends(site.cluster, partitions)).values()) == [3, 4]


def test_persistent_error_is_raised_at_timeout() -> None:
    site, partitions = site_with(3)
    site.sim.on_request = lambda request: (
        "drop" if isinstance(request, OffsetForLeaderEpochRequest) else None
    )
    with pytest.raises(KafkaError, match="tried for 5 s"):
        site.sim.run(log_ends(site.cluster, partitions))


def test_missing_partition_is_an_error() -> None:
    site, _ = site_with(3)
    with pytest.raises(KafkaError, match="cannot look up the end of t-9"):
        site.sim.run(log_ends(site.cluster, [TopicPartition("t", 9)]))


def test_end_is_unknown_to_an_old_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    site, partitions = site_with(3)
    monkeypatch.setattr(Connection, "speaks", lambda *_: False)
    assert list(site.sim.run(log_ends(site.cluster, partitions)).values()) == [UNKNOWN_END]
