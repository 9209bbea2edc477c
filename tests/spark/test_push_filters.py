"""With ``pushFilters``, conditions of a query narrow what its tasks read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from plog.records.codec import Record
from tests.spark.test_batch_read import Cluster, cluster

__all__ = ["cluster"]

ENABLED = "spark.sql.python.filterPushdown.enabled"
RECORDS = [Record(timestamp=1000 * offset, key=None, value=b"v") for offset in range(20)]


@pytest.fixture
def pushdown(cluster: Cluster) -> Iterator[Cluster]:
    cluster.spark.conf.set(ENABLED, "true")
    yield cluster
    cluster.spark.conf.unset(ENABLED)


@pytest.fixture
def filled(cluster: Cluster, new_topic: Callable[[], str]) -> str:
    topic = new_topic()
    cluster.create(topic, 2)
    for partition in (0, 1):
        cluster.produce(topic, partition, RECORDS)
    return topic


@pytest.mark.parametrize(
    ("condition", "offsets_read"),
    [
        ("true", 40),
        ("partition = 1", 20),
        ("offset >= 15 AND offset < 18", 6),
        ("partition IN (0) AND offset = 3", 1),
        ("timestamp >= timestamp_millis(17500)", 4),
        ("timestamp > timestamp_millis(17000) AND partition = 0", 2),
        ("timestamp < timestamp_millis(5000)", 40),
        ("timestamp >= timestamp_millis(99999)", 0),
        ("topic = 'other'", 0),
        ("offset < 3 OR partition = 1", 40),
        ("NOT (offset < 3)", 34),
        ("value = 'v' AND offset > 17", 4),
    ],
)
def test_conditions_narrow_the_ranges_and_not_the_rows(
    pushdown: Cluster, filled: str, condition: str, offsets_read: int
) -> None:
    # With one offset per task, the number of tasks shows how many offsets are read.
    options = {"subscribe": filled, "maxRecordsPerPartition": "1"}
    narrowed = pushdown.query("plog", pushFilters="true", **options).where(condition)
    assert narrowed.rdd.getNumPartitions() == max(1, offsets_read)
    expected = pushdown.query("plog", subscribe=filled).where(condition)
    assert sorted(narrowed.collect(), key=str) == sorted(expected.collect(), key=str)


def test_end_of_the_time_narrows_topics_with_append_time(
    pushdown: Cluster, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    pushdown.create(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    for record in RECORDS[:3]:
        pushdown.produce(topic, 0, [record])
    query = pushdown.query("plog", subscribe=topic, pushFilters="true", maxRecordsPerPartition="1")
    assert query.where("timestamp < timestamp_millis(5000)").rdd.getNumPartitions() == 1
    assert query.where("timestamp < timestamp_millis(5000)").collect() == []
    assert query.where("timestamp <= current_timestamp()").count() == 3


def test_error_names_the_setting_that_spark_needs(cluster: Cluster, filled: str) -> None:
    with pytest.raises(Exception, match=ENABLED):
        cluster.rows("plog", subscribe=filled, pushFilters="true")
