"""Fixtures of the Spark tests: one SparkSession and one broker, shared by all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.helpers.programs.apache_kafka import ApacheKafka
from tests.integration.conftest import broker, new_topic, start_broker, topic
from tests.spark.cluster import Cluster
from tests.spark.filled_topic import fill
from tests.spark.spark_session import JVM_OPTIONS, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plogd.testing.broker_process import BrokerProcess

__all__ = ["broker", "new_topic", "start_broker", "topic"]

# A job: pytest would run it, because it imports all files to find examples.
collect_ignore = ["standalone_job.py"]


@pytest.fixture(scope="session", autouse=True)
def _short_lived_jvms() -> Iterator[None]:
    """Let all drivers start with options for JVMs that live for seconds."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A SparkSession; starting one takes several seconds, so that all tests share it."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def cluster(spark: SparkSession, broker: BrokerProcess) -> Cluster:
    """The shared broker, with queries to it."""
    return Cluster(spark, broker.bootstrap_servers)


@pytest.fixture(scope="session")
def filled(cluster: Cluster) -> str:
    """The topic of filled_topic.py."""
    return fill(cluster)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka, for what plog does not serve yet."""
    server = ApacheKafka(tmp_path_factory.mktemp("kafka"), {})
    yield server
    server.stop()
