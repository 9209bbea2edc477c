"""With ``pushFilters``, conditions of a query narrow what its tasks read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from plog.records.codec import Record
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENABLED = "spark.sql.python.filterPushdown.enabled"
RECORDS = [Record(timestamp=1000 * offset, key=None, value=b"v") for offset in range(8)]


@pytest.fixture
def pushdown(cluster: Cluster) -> Iterator[Cluster]:
    cluster.spark.conf.set(ENABLED, "true")
    yield cluster
    cluster.spark.conf.unset(ENABLED)


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> str:
    topic = "push-filters"
    cluster.create(topic, 2)
    for partition in (0, 1):
        cluster.produce(topic, partition, RECORDS)
    return topic


@pytest.fixture(scope="module")
def all_rows(cluster: Cluster, filled: str) -> Iterator[DataFrame]:
    """The rows of the topic, which Spark keeps."""
    rows = cluster.query("plog", subscribe=filled).coalesce(1).cache()
    yield rows
    rows.unpersist()


@pytest.mark.parametrize(
    ("condition", "offsets_read"),
    [
        ("true", 16),
        ("partition = 1", 8),
        ("offset >= 3 AND offset < 6", 6),
        ("partition IN (0) AND offset = 3", 1),
        ("timestamp >= timestamp_millis(5500)", 4),
        ("timestamp > timestamp_millis(5000) AND partition = 0", 2),
        ("timestamp < timestamp_millis(5000)", 16),
        ("timestamp >= timestamp_millis(99999)", 0),
        ("topic = 'other'", 0),
        ("offset < 3 OR partition = 1", 16),
        ("NOT (offset < 3)", 10),
        ("value = 'v' AND offset > 5", 4),
    ],
)
def test_conditions_narrow_the_ranges_and_not_the_rows(
    pushdown: Cluster, filled: str, all_rows: DataFrame, condition: str, offsets_read: int
) -> None:
    # With one offset per task, the number of tasks shows how many offsets are read.
    options = {"subscribe": filled, "maxRecordsPerPartition": "1"}
    narrowed = pushdown.query("plog", pushFilters="true", **options).where(condition)
    assert narrowed.rdd.getNumPartitions() == max(1, offsets_read)
    expected = all_rows.where(condition)
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
