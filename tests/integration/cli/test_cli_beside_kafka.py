"""Tools whose requests only Apache Kafka supports: controllers, features, broker unregistration.

plog's tools and Kafka's own print the same.
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
from tests.helpers.programs.apache_kafka import ApacheKafka
from tests.helpers.programs.kafka_tools import KafkaTools

pytestmark = pytest.mark.long
CLASSES = {"cluster": "ClusterTool", "configs": "ConfigCommand", "features": "FeatureCommand"}


class BothTools(NamedTuple):
    """An Apache Kafka cluster and both sets of tools."""

    servers: str
    controllers: str
    tools: KafkaTools

    def same(self, line: str, *, codes: tuple[int, int] | None = None) -> str:
        """Check that both print the same, and return it; S means brokers and C controllers.

        The exit codes must be `codes`, plog's first, or by default equal.
        """
        ours, code = self.ours(line)
        tool, *words = self._words(line)
        theirs = self.tools.attempt(CLASSES[tool], *words)
        assert ours == theirs.stdout
        assert (code, theirs.code) == (codes or (code, code))
        return ours

    def ours(self, line: str) -> tuple[str, int]:
        """Return the output and exit code of plog's tool."""
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
def both(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothTools]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), {})
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    yield BothTools(kafka.bootstrap_servers, f"{host}:{int(port) + 1}", kafka_tools)
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
        "configs S --alter --group g --add-config consumer.session.timeout.ms=46000",
        "configs S --describe --group g",
        "configs S --describe --entity-type groups",
    ],
)
def test_plog_prints_the_same_as_kafkas_tool(both: BothTools, line: str) -> None:
    assert both.same(line)


@pytest.mark.parametrize("option", ["--group", "--client-metrics"])
def test_missing_entity_prints_the_same_but_exits_with_1(both: BothTools, option: str) -> None:
    assert both.same(f"configs S --describe {option} missing", codes=(1, 0))


def test_release_tables_match_kafkas(both: BothTools) -> None:
    for level in range(FIRST_RELEASE, LAST_RELEASE + 1):
        both.same(f"features S version-mapping --release-version {METADATA_VERSIONS[level]}")
    for name, levels in FEATURES.items():
        for each in levels:
            both.same(f"features S feature-dependencies --feature {name}={each.level}")


def test_controller_features_match_kafkas_tool(both: BothTools) -> None:
    """The epoch is excluded because it advances between the two requests."""
    ours, code = both.ours("features C describe")
    assert code == 0
    theirs = both.tools.run(
        "FeatureCommand", "--bootstrap-controller", both.controllers, "describe"
    )
    assert [line.split("Epoch")[0] for line in ours.splitlines()] == [
        line.split("Epoch")[0] for line in theirs.splitlines()
    ]


@pytest.mark.parametrize("target", ["S", "C"])
def test_broker_is_unregistered_only_once(both: BothTools, target: str) -> None:
    """Runs last: the broker keeps running, and registers again at its next start."""
    assert both.ours(f"cluster unregister {target} --id 99") == ("", 1)
    if target == "C":
        output, code = both.ours("cluster unregister C --id 1")
        assert (output, code) == ("Broker 1 is no longer registered.\n", 0)
        assert both.ours("cluster unregister C --id 1") == ("", 1)
