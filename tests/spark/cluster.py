"""A cluster, plog or Apache Kafka, and batch queries to it with either source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plog.client.faces.blocking import Admin
from plog.client.simple import SimpleClient
from plog.records.codec import Record
from tests.spark.connector import need_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ("plog", "kafka")
REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, with its topics and queries to it."""

    spark: SparkSession
    bootstrap_servers: str

    def create(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        # The tests use old timestamps, and a slow run may outlast the first retention sweep.
        configs = {"retention.ms": "-1"} | dict(config or {})
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topic(topic, partitions, configs=configs)

    def produce(self, topic: str, partition: int, records: Sequence[Record], **more: Any) -> None:
        host, _, port = self.bootstrap_servers.rpartition(":")
        with SimpleClient(host, int(port)) as client:
            client.produce(topic, partition, records, **more)

    def query(self, source: str, **options: str) -> DataFrame:
        if source == "kafka":
            need_connector()
        reader = self.spark.read.format(source)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap_servers)
        return reader.options(**options).load()

    def stream(self, source: str, **options: str) -> DataFrame:
        if source == "kafka":
            need_connector()
        reader = self.spark.readStream.format(source)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap_servers)
        return reader.options(**options).load()

    def rows(self, source: str, **options: str) -> list[tuple[Any, ...]]:
        """Return the rows as tuples, sorted by topic, partition and offset."""
        return sorted_rows(self.query(source, **options))

    def outcome(self, source: str, **options: str) -> list[tuple[Any, ...]] | str:
        """Return the rows, or REJECTED if the query fails."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return self.rows(source, **options)
        except (PySparkException, Py4JJavaError):
            return REJECTED

    def outcomes(self, **options: str) -> list[list[tuple[Any, ...]] | str]:
        """Return the outcome for each of SOURCES; both queries run at the same time."""
        with ThreadPoolExecutor(len(SOURCES)) as pool:
            return list(pool.map(lambda source: self.outcome(source, **options), SOURCES))


def sorted_rows(df: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a source as tuples, sorted by topic, partition and offset."""
    return sorted(map(tuple, df.collect()), key=lambda row: row[2:5])
