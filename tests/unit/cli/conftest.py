"""Admin tools that run against a simulated broker in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from plog.cli.commands import Configure
from plog.cli.main import run_tool
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.client.reassigning_cluster import ReassigningCluster
from tests.helpers.sim.sim_broker import SimBroker


class Output(NamedTuple):
    """The exit code and output of a tool."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output."""
        return self.out.splitlines()


Run = Callable[..., Output]


class CliSite:
    """A simulated broker and the tools that connect to it."""

    def __init__(self, sim: SimNetwork, capsys: pytest.CaptureFixture[str]) -> None:
        self.sim = sim
        self._capsys = capsys

    def tool(self, configure: Configure) -> Run:
        """Return a function that runs a tool with its arguments, connected to the broker."""

        def run(*words: object) -> Output:
            line = ["--bootstrap-server", self.sim.bootstrap_servers[0], *map(str, words)]
            return self.run_line(configure, line)

        return run

    def run_line(self, configure: Configure, line: list[str]) -> Output:
        """Run a tool with exactly the arguments `line`."""
        self._capsys.readouterr()
        try:
            code = run_tool("tool", configure, line)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)

    @property
    def broker(self) -> SimBroker:
        """The simulated broker."""
        return self.sim.broker


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliSite:
    """A simulated broker, and tools that connect to it instead of the network."""
    sim = SimNetwork()
    monkeypatch.setattr("plog.cli.admin_client.SocketNetwork", lambda **_: sim)
    monkeypatch.setattr("plog.cli.admin_client.run_blocking", sim.run)
    return CliSite(sim, capsys)


class ReassignmentSite:
    """Tools that connect to a double of a cluster that moves replicas."""

    def __init__(self, cluster: ReassigningCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys

    def run(self, configure: Configure, *words: object) -> Output:
        """Run a tool with its arguments."""
        self._capsys.readouterr()
        try:
            line = [*map(str, words), "--bootstrap-server", "192.0.2.1:9092"]
            code = run_tool("tool", configure, line)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)


@pytest.fixture
def reassignment_site(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> ReassignmentSite:
    """Three brokers without topics, and tools that connect to them."""
    cluster = ReassigningCluster({1: None, 2: None, 3: None})
    monkeypatch.setattr("plog.cli.admin_client.Cluster", lambda network, settings: cluster)
    return ReassignmentSite(cluster, capsys)
