"""Options of streams have the effect that they have on Spark's Kafka connector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plog.client.faces.blocking import Admin
from plog.errors import PlogError
from plog.records.codec import Record
from plog.types import TopicPartition
from tests.spark.cluster import REJECTED, SOURCES, Cluster, sorted_rows
from tests.spark.filled_topic import TOPIC, by_partition

TRIMMED = "trimmed"
"""A topic whose first four records are deleted."""
CHOICES = {"assign", "subscribe", "subscribePattern"}

EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {"startingOffsetsByTimestampStrategy": "latest"}
TIMES = by_partition(p0=3000, p1=0, p2=19_001, p3=0)
SHORT_WAITS = {
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "5",
    "kafkaConsumer.pollTimeoutMs": "2000",
}
FROM_DELETED = {"subscribe": TRIMMED, "startingOffsets": json.dumps({TRIMMED: {"0": 2}})}
PAST_END = {"startingOffsets": by_partition(p0=50, p1=30, p2=-2, p3=0), **SHORT_WAITS}

ACCEPTED: dict[str, dict[str, str]] = {
    "defaults": {},
    "subscribe": {"subscribe": f"{TOPIC}, {TRIMMED}", **EARLIEST, "maxRecordsPerPartition": "7"},
    "pattern": {"subscribePattern": "f.ll|^tri", **EARLIEST},
    "assign": {
        **EARLIEST,
        "assign": json.dumps({TOPIC: [2, 0]}),
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "5",
        "groupIdPrefix": "x",
        "includeHeaders": "true",
        "kafka.group.id": "mine",
        "kafkaConsumer.pollTimeoutMs": "20000",
        "minPartitions": "9",
    },
    "offsets": {"startingOffsets": by_partition(p0=5, p1=-2, p2=-1, p3=0)},
    "lost records": {
        "assign": json.dumps({TOPIC: [1, 2], TRIMMED: [0]}),
        "startingOffsets": json.dumps({TOPIC: {"1": 50, "2": 3}, TRIMMED: {"0": 2}}),
        **SHORT_WAITS,
        "failOnDataLoss": "false",
    },
    "time before times": {
        "assign": json.dumps({TOPIC: [0, 1, 2]}),
        "startingTimestamp": "15500",
        "startingOffsetsByTimestamp": by_partition(p0=0, p1=0, p2=0),
    },
    "times before offsets": {"startingOffsetsByTimestamp": TIMES, **EARLIEST, **LENIENT},
    "max offsets": {**EARLIEST, "maxOffsetsPerTrigger": "35", "minOffsetsPerTrigger": "0"},
    "min offsets": {**EARLIEST, "minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h"},
}
"""Options with which both sources read the same rows in batches of the same size."""

REJECTED_BY_BOTH: dict[str, dict[str, str]] = {
    "deleted records": FROM_DELETED,
    "offset past the end": PAST_END,
    "missing topic": {"subscribe": "no-such-topic", **EARLIEST},
    "missing offsets": {"startingOffsets": by_partition(p0=5)},
    "other partition": {"startingOffsets": by_partition(p0=5, p1=0, p2=0, p3=0, p4=0)},
    "time without record": {"startingTimestamp": "15500"},
    "missing times": {"startingOffsetsByTimestamp": by_partition(p0=5), **LENIENT},
    "two choices": {"subscribe": "filled", "subscribePattern": "filled"},
    "assign that is not JSON": {"assign": "filled"},
    "empty subscribe": {"subscribe": " "},
    "offsets that are not JSON": {"startingOffsets": "first"},
    "time that is no number": {"startingTimestamp": "now"},
    "times that are not JSON": {"startingOffsetsByTimestamp": "5"},
    "strategy": {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "newest"},
    "ending offsets": {"endingOffsets": "latest"},
    "ending times": {"endingOffsetsByTimestamp": TIMES},
    "data loss": {"failOnDataLoss": "yes"},
    "max offsets that are no number": {"maxOffsetsPerTrigger": "x"},
    "min above max": {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
    "delay": {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"},
    "no min partitions": {"minPartitions": "0"},
    "no max records": {"maxRecordsPerPartition": "0"},
    "headers that are no boolean": {"includeHeaders": "yes"},
    "reset": {"kafka.auto.offset.reset": "earliest"},
    "commit": {"kafka.enable.auto.commit": "true"},
    "key deserializer": {"kafka.key.deserializer": "x"},
    "value deserializer": {"kafka.value.deserializer": "x"},
    "interceptor": {"kafka.interceptor.classes": "x"},
    "retries that are no number": {"fetchOffset.numRetries": "x"},
    "no retries": {"fetchOffset.numRetries": "0"},
    "negative retries": {"fetchOffset.numRetries": "-1"},
    "interval that is no number": {"fetchOffset.retryIntervalMs": "x"},
    "poll timeout that is no number": {"kafkaConsumer.pollTimeoutMs": "x"},
    "no poll timeout": {**EARLIEST, "kafkaConsumer.pollTimeoutMs": "0"},
}
"""Options that are wrong, or that do not fit the topics that the queries find."""

REJECTED_BY_PLOG: dict[str, dict[str, str]] = {
    # For the connector, -1 is the latest offset here, because it is in the protocol.
    "negative time": {"startingTimestamp": "-1"},
    # The connector ignores it, so the query would not end where it should.
    "ending time": {"endingTimestamp": "15500"},
    # With new records, the query would never read any.
    "no max offsets": {"maxOffsetsPerTrigger": "0"},
    # The connector fails when it has to wait.
    "negative interval": {"fetchOffset.retryIntervalMs": "-1"},
}
"""The only options that just the connector accepts; docs/spark.md lists them."""


@pytest.fixture(scope="module")
def trimmed(cluster: Cluster) -> str:
    cluster.create(TRIMMED)
    cluster.produce(TRIMMED, 0, [Record(timestamp=1, value=b"%d" % n) for n in range(10)])
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(TRIMMED, 0): 4}).raise_first()
    return TRIMMED


def chosen(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a query, which reads `filled` if they do not choose topics."""
    return {**({} if CHOICES & options.keys() else {"subscribe": TOPIC}), **options}


def outcome(cluster: Cluster, source: str, options: Mapping[str, str], folder: Path) -> Any:
    """Return the rows of a stream and the sizes of its batches, or REJECTED if it fails."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    name = "".join(filter(str.isalnum, f"{source}{folder.name}"))
    try:
        rows = cluster.stream(source, **chosen(options))
        writer = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / source)).start()
        query.awaitTermination()
    except (PySparkException, Py4JJavaError):
        return REJECTED
    sizes = [batch.numInputRows for batch in query.recentProgress if batch.numInputRows]
    return sorted_rows(cluster.spark.table(name)), sizes


def test_options_have_the_effect_that_they_have_on_the_connector(
    cluster: Cluster, filled: str, trimmed: str, tmp_path: Path
) -> None:
    def outcomes(source: str) -> dict[str, Any]:
        return {
            name: outcome(cluster, source, options, tmp_path / name)
            for name, options in ACCEPTED.items()
        }

    # One query of each source at a time: Spark gives a Python worker only ten seconds to start.
    with ThreadPoolExecutor(len(SOURCES)) as pool:
        mine, theirs = pool.map(outcomes, SOURCES)
    assert mine == theirs
    assert REJECTED not in mine.values()


@pytest.mark.parametrize("name", REJECTED_BY_BOTH)
def test_wrong_options_are_rejected_by_both_sources(
    cluster: Cluster, filled: str, trimmed: str, name: str, tmp_path: Path
) -> None:
    assert fails(cluster, REJECTED_BY_BOTH[name])
    assert outcome(cluster, "kafka", REJECTED_BY_BOTH[name], tmp_path / name) == REJECTED


@pytest.mark.parametrize("name", REJECTED_BY_PLOG)
def test_options_that_mislead_are_rejected_by_plog_alone(
    cluster: Cluster, filled: str, name: str, tmp_path: Path
) -> None:
    assert fails(cluster, REJECTED_BY_PLOG[name])
    assert outcome(cluster, "kafka", REJECTED_BY_PLOG[name], tmp_path / name) == ([], [])


def fails(cluster: Cluster, options: Mapping[str, str]) -> bool:
    """Return whether plog's source fails to plan the first batches of a stream.

    It is called as Spark calls it, but without the processes that Spark starts for each query.
    """
    from plog.spark.source import PlogSource

    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers} | chosen(options)
    # Spark passes the names of options in lower case.
    source = PlogSource({name.lower(): value for name, value in given.items()})
    try:
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        for _ in range(2):  # The first batch is empty.
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            reader.partitions(start, end)
    except PlogError:
        return True
    return False
