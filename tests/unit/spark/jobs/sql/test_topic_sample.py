"""The sample of a topic: the newest values of each partition."""

from __future__ import annotations

import pytest

from plog.spark.jobs.sql.topic_sample import read_sample
from plog.types import TopicPartition
from tests.unit.client.audit.scripted_cluster import ScriptedCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> ScriptedCluster:
    made = ScriptedCluster()
    made.create("t", partitions=2)
    for value in (b"1", b"2", b"3"):
        made.append(P0, value)
    return made


def test_newest_values_of_each_partition_are_sampled(cluster: ScriptedCluster) -> None:
    cluster.append(P1, None)
    found = read_sample(cluster, "t", 2)
    assert found.values == (b"2", b"3", None)
    assert found.ends == {P0: 3, P1: 1}


def test_sample_of_no_records_has_ends(cluster: ScriptedCluster) -> None:
    assert read_sample(cluster, "t", 0).values == ()
    cluster.delete_before(P0, 3)
    found = read_sample(cluster, "t", 2)
    assert (found.values, found.ends) == ((), {P0: 3, P1: 0})


def test_records_that_retention_deletes_meanwhile_are_ignored(cluster: ScriptedCluster) -> None:
    cluster.before_read = lambda: cluster.delete_before(P0, 3)
    assert read_sample(cluster, "t", 2).values == ()
