"""Tools that only an Apache Kafka answers: its controllers, features, and brokers to forget.

Ours and Kafka's own print the same about it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from plog.cli.main import load_tool, run_tool
from plog.metadata_versions import METADATA_VERSIONS
from plog.release_features import FEATURES, FIRST_RELEASE, LAST_RELEASE
from tests.helpers.apache_kafka import ApacheKafka
from tests.helpers.kafka_tools import KafkaTools

pytestmark = pytest.mark.long
CLASSES = {"cluster": "ClusterTool", "configs": "ConfigCommand", "features": "FeatureCommand"}


class Beside(NamedTuple):
    """A Kafka, and both sets of tools."""

    servers: str
    controllers: str
    tools: KafkaTools

    def same(self, line: str) -> str:
        """What both print for a command line that succeeds; S and C stand for whom to ask."""
        ours, code = self.ours(line)
        tool, *words = self._words(line)
        theirs = self.tools.attempt(CLASSES[tool], *words)
        assert ours == theirs.stdout
        assert code == theirs.code
        return ours

    def ours(self, line: str) -> tuple[str, int]:
        """What ours prints, and its exit code."""
        tool, *words = self._words(line)
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
            code = run_tool(tool, load_tool(tool), words)
        return out.getvalue(), code

    def _words(self, line: str) -> list[str]:
        return (
            line.replace(" S", f" --bootstrap-server {self.servers}")
            .replace(" C", f" --bootstrap-controller {self.controllers}")
            .split()
        )


@pytest.fixture(scope="module")
def beside(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), {})
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    yield Beside(kafka.bootstrap_servers, f"{host}:{int(port) + 1}", kafka_tools)
    kafka.stop()


@pytest.mark.parametrize(
    "line",
    [
        "cluster cluster-id S",
        "cluster cluster-id C",
        "cluster list-endpoints S --include-fenced-brokers",
        "cluster list-endpoints C",
        "features S upgrade --release-version 4.3 --dry-run",
        "features C upgrade --release-version 4.2 --dry-run",
        "features C downgrade --release-version 3.9 --dry-run",
        "configs C --describe --broker 1 --all",
        "configs C --describe --entity-type brokers",
        "configs C --describe --broker-logger 1",
        "configs C --alter --broker-defaults --add-config log.retention.ms=77777",
        "configs S --describe --broker-defaults",
        "configs S --describe --group nobody",
        "configs S --describe --client-metrics nobody",
        "configs S --alter --group g --add-config consumer.session.timeout.ms=46000",
        "configs S --describe --group g",
        "configs S --describe --entity-type groups",
    ],
)
def test_both_tell_the_same(beside: Beside, line: str) -> None:
    assert beside.same(line)


def test_both_know_the_same_releases(beside: Beside) -> None:
    for level in range(FIRST_RELEASE, LAST_RELEASE + 1):
        beside.same(f"features S version-mapping --release-version {METADATA_VERSIONS[level]}")
    for name, levels in FEATURES.items():
        for each in levels:
            beside.same(f"features S feature-dependencies --feature {name}={each.level}")


def test_both_are_told_of_the_same_levels(beside: Beside) -> None:
    """The controller's epoch has gone on when the second one asks."""
    ours, code = beside.ours("features C describe")
    assert code == 0
    theirs = beside.tools.run(
        "FeatureCommand", "--bootstrap-controller", beside.controllers, "describe"
    )
    assert [line.split("Epoch")[0] for line in ours.splitlines()] == [
        line.split("Epoch")[0] for line in theirs.splitlines()
    ]


@pytest.mark.parametrize("whom", ["S", "C"])
def test_a_broker_is_forgotten_once(beside: Beside, whom: str) -> None:
    """Comes last: the broker is not told, and comes back with its next start."""
    assert beside.ours(f"cluster unregister {whom} --id 99") == ("", 1)
    if whom == "C":
        told, code = beside.ours("cluster unregister C --id 1")
        assert (told, code) == ("Broker 1 is no longer registered.\n", 0)
        assert beside.ours("cluster unregister C --id 1") == ("", 1)
