"""The name of this machine."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from plogd.net.host_name import find_host_name
from plogd.ports import Later, spawn
from tests.helpers.sim.sim_ports import outcome


class Jobs:
    """Jobs that run at once, or fail with `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def run(self, name: str, function: Any, timeout_s: float) -> Later[Any]:
        later: Later[Any] = Later()
        if self._error is None:
            later.succeed(function())
        else:
            later.fail(self._error)
        return later


def find(jobs: Any) -> str:
    return outcome(spawn(find_host_name(jobs, 1.0)))


def test_name_is_the_canonical_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "broker.example.com")
    assert find(Jobs()) == "broker.example.com"


@pytest.mark.parametrize("error", [TimeoutError("late"), OSError("no resolver")])
def test_own_name_is_used_without_a_resolver(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "broker")
    assert find(Jobs(error)) == "broker"
