"""Three brokers and three ZooKeeper servers on machines of their own, under load, with real faults.

The faults hit one cluster in turn; the last test checks everything that its clients have seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.faults.fault_kinds import FAULTS
from tests.cluster.faults.run import FaultRun

SEED = 20
SHORT = (
    "leader killed",
    "leader paused",
    "rolling restart",
    "controller isolated",
    "leader cut from ZooKeeper",
    "follower to leader cut",
    "ZooKeeper's leader killed",
    "all brokers killed",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRun]:
    """A cluster with clients."""
    with FaultRun(tmp_path_factory.mktemp("faults"), SEED) as run:
        yield run


@pytest.mark.parametrize("name", SHORT)
def test_cluster_recovers_from_a_fault(run: FaultRun, name: str) -> None:
    run.cause(name)


def test_clients_have_seen_no_anomaly(run: FaultRun) -> None:
    assert run.finish() == []
    # Every record was acknowledged in the end: clients repeat their requests.
    assert [name for name in run.history.counts if name.startswith("failed")] == []


@pytest.mark.long
def test_all_faults_with_java_clients_show_no_anomaly(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with FaultRun(tmp_path_factory.mktemp("all-faults"), SEED, java=True) as run:
        for name in FAULTS:
            run.cause(name)
        assert run.finish() == []
    assert sum(run.faults.values()) == len(FAULTS)
