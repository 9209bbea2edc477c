"""``plog reassign-partitions`` against a simulated broker of plog, alone in its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.reassign_partitions.command import configure
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Output

FORM = '{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": [%s]}]}'


class Tool:
    """The tool, with a file that keeps the replica of a partition on broker 1."""

    def __init__(self, site: CliSite, path: Path) -> None:
        self._run = site.tool(configure)
        self.path = path

    def __call__(self, *words: object, log_dir: str = "any") -> Output:
        self.path.write_text(FORM % f'"{log_dir}"')
        return self._run("--reassignment-json-file", self.path, *words)


@pytest.fixture
def tool(site: CliSite, tmp_path: Path) -> Tool:
    create_topic(site.broker, "orders")
    return Tool(site, tmp_path / "moves.json")


def test_reassignment_is_verified_and_throttles_are_removed(tool: Tool) -> None:
    started = tool("--execute", "--throttle", 100000)
    assert (started.code, started.err) == (0, "")
    verified = tool("--verify")
    assert (verified.code, verified.err) == (0, "")
    assert verified.lines[1] == "Reassignment of partition orders-0 is completed."
    assert verified.lines[-2:] == [
        "Clearing broker-level throttles on broker 1",
        "Clearing topic-level throttles on topic orders",
    ]


@pytest.mark.parametrize(
    ("log_dir", "words"), [("/data", ()), ("any", ("--replica-alter-log-dirs-throttle", 5))]
)
def test_move_between_directories_is_rejected_before_anything_changes(
    tool: Tool, log_dir: str, words: tuple[object, ...]
) -> None:
    result = tool("--execute", *words, log_dir=log_dir)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "plog: cannot move replicas to other log directories: broker 1 does not support"
        " AlterReplicaLogDirs; remove log_dirs from the file, and --replica-alter-log-dirs-throttle"
        " from the command\n"
    )
