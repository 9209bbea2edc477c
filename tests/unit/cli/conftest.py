"""Tools that administrate, run against a whole broker in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from plog.cli.commands import Configure
from plog.cli.main import run_tool
from tests.helpers.sim_broker import SimBroker
from tests.helpers.sim_network import SimNetwork


class Output(NamedTuple):
    """How a tool ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed on its standard output."""
        return self.out.splitlines()


Run = Callable[..., Output]


class CliSite:
    """A simulated broker, and tools that reach it."""

    def __init__(self, sim: SimNetwork, capsys: pytest.CaptureFixture[str]) -> None:
        self.sim = sim
        self._capsys = capsys

    def tool(self, configure: Configure) -> Run:
        """A function that runs one tool with these words."""

        def run(*words: object) -> Output:
            line = ["--bootstrap-server", self.sim.bootstrap_servers[0], *map(str, words)]
            return self.ended(configure, line)

        return run

    def ended(self, configure: Configure, line: list[str]) -> Output:
        """Run a tool with exactly this line."""
        self._capsys.readouterr()
        try:
            code = run_tool("tool", configure, line)
        except SystemExit as end:
            code = int(end.code or 0)
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)

    @property
    def broker(self) -> SimBroker:
        """The broker, to ask it as others do."""
        return self.sim.broker


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliSite:
    """A broker, and tools that reach it instead of the network."""
    sim = SimNetwork()
    monkeypatch.setattr("plog.cli.admin_client.SocketNetwork", lambda **_: sim)
    monkeypatch.setattr("plog.cli.admin_client.run_blocking", sim.run)
    return CliSite(sim, capsys)
