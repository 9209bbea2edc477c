"""Random elections, cuts and restarts of a cluster: acknowledged records survive, logs converge.

The controller of the test elects only members of the in-sync replicas, as a real one does.
"""

from __future__ import annotations

import random
import re

import pytest

from plogd.metadata.cache import PartitionState
from tests.helpers.sim.sim_broker import Asked
from tests.helpers.sim.sim_cluster import CONTROLLER, SimCluster

STEPS = 120
BROKERS = (1, 2, 3)
ENDS = (*BROKERS, CONTROLLER)


class Storm:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = SimCluster(3)
        self.cluster.create("t", [1, 2, 3], **{"min.insync.replicas": "2"})
        self.sent: dict[bytes, Asked] = {}
        self.acknowledged: set[bytes] = set()
        self.cuts: set[tuple[int, int]] = set()
        self.count = 0

    @property
    def state(self) -> PartitionState:
        return self.cluster.states["t", 0]  # type: ignore[index]

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.random.choices(
                (
                    self.produce,
                    self.wait,
                    self.cut,
                    self.heal,
                    self.stall,
                    self.resume,
                    self.elect,
                    self.restart,
                ),
                (10, 8, 2, 4, 2, 4, 3, 1),
            )[0]
            step()
            self.check()
        self.converge()

    # -- steps --------------------------------------------------------------------------------

    def produce(self) -> None:
        leader = self.state.leader
        if leader not in self.cluster.brokers:
            return
        self.count += 1
        value = b"value %d;" % self.count
        self.sent[value] = self.cluster.produce(value, timeout_ms=300_000)

    def wait(self) -> None:
        self.cluster.advance(self.random.choice((0, 1, 2, 5, 10, 100, 1000, 20_000)))

    def cut(self) -> None:
        one, other = self.random.sample(ENDS, 2)
        self.cuts.add((one, other))
        self.cluster.cut(one, other)

    def heal(self) -> None:
        if self.cuts:
            cut = self.random.choice(sorted(self.cuts))
            self.cuts.remove(cut)
            self.cluster.heal(*cut)

    def stall(self) -> None:
        self.cluster.stalled.add(self.random.choice(sorted(self.cluster.brokers)))

    def resume(self) -> None:
        if self.cluster.stalled:
            self.cluster.stalled.remove(self.random.choice(sorted(self.cluster.stalled)))

    def elect(self) -> None:
        candidates = [one for one in self.state.isr if one in self.cluster.brokers]
        if candidates:
            # A member that is cut off may be elected, and learns that later.
            self.elected(self.random.choice(candidates))

    def elected(self, leader: int) -> None:
        wait_ms = self.random.choice((0, 1, 3, 50))
        self.cluster.elect(leader, isr=self.state.isr, wait_ms=wait_ms)

    def restart(self) -> None:
        one = self.random.choice(sorted(self.cluster.brokers))
        self._note_answers()
        self.cluster.kill(one, power_loss=self.random if self.random.randrange(2) else None)
        self.sent = {value: asked for value, asked in self.sent.items() if asked.is_done}
        self.cluster.advance(self.random.choice((1, 1000, 40_000)))
        if self.state.leader == one:
            others = [each for each in self.state.isr if each in self.cluster.brokers]
            self.elected(self.random.choice(others) if others else -1)
        self.cluster.start(one, self.cluster.files[one])
        leader = self.state.leader if self.state.leader != -1 else one
        # A new epoch, because the broker may not lead in an epoch of its log.
        self.elected(leader)

    # -- checks -------------------------------------------------------------------------------

    def _note_answers(self) -> None:
        for value, asked in list(self.sent.items()):
            if asked.is_done:
                del self.sent[value]
                if SimCluster.error_of(asked) == 0:
                    self.acknowledged.add(value)

    def check(self) -> None:
        self._note_answers()
        for broker in self.cluster.brokers.values():
            log = broker.log("t")
            assert log.high_watermark <= log.log_end_offset

    def converge(self) -> None:
        for cut in self.cuts:
            self.cluster.heal(*cut)
        self.cluster.stalled.clear()
        self.cluster.advance(1000)
        leader = next(one for one in self.state.isr if one in self.cluster.brokers)
        self.cluster.elect(leader, isr=self.state.isr)
        self.cluster.advance(40_000)
        last = self.cluster.produce(b"last")
        self.cluster.advance(40_000)
        assert SimCluster.error_of(last) == 0
        self._note_answers()
        logs = [self.cluster.records(one) for one in BROKERS]
        assert logs[0] == logs[1] == logs[2]
        values = re.findall(rb"value \d+;", logs[0])
        assert len(set(values)) == len(values)
        assert self.acknowledged <= set(values)
        assert sorted(self.state.isr) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(12))
def test_acknowledged_records_survive(seed: int) -> None:
    storm = Storm(seed)
    storm.run()
    assert storm.acknowledged
