"""Disks that are lost, and disks that return to an older copy, while the broker is down.

Records that were acknowledged must survive. This is possible only if another replica has them, so
a disk is lost only while each partition whose in-sync replicas contain its broker has another
member that runs and has all its records. docs/cluster.md defines what is promised beyond that:

- A replica that has lost records does not lead as long as ZooKeeper counts it as in sync.
- If the last member has lost its disk, an operator must elect another replica. This can happen
  here, too: the other members may lose their sessions before they know that the disk is lost.
- An older copy is not recognized by its contents. The controller must notice the restart, and
  another member must still be there then.

replica_checker.py contains the rules.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from plogd.log.file_names import parse_partition_dir_name

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld
    from tests.sim.cluster.machine import Machine

_ALL_KILLED = 0.4
"""The share of lost disks with which all other processes end."""
_LOOKS = 500
_LOOK_MS = 4.0


class DiskFaults:
    """Injects faults as a coroutine, sequentially; every seed enables only some kinds."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.cluster = cluster
        self.chance = random.Random(f"disks {cluster.seed}")
        faults: list[Callable[[], Awaitable[None]]] = [
            self.lost_disk,
            self.lost_log_directory,
            self.older_disk,
            self.lost_disk_of_joining_replica,
        ]
        self._faults = self.chance.sample(faults, self.chance.choice((0, 1, 2, len(faults))))
        self._pace_ms = self.chance.choice((500, 2_000, 6_000))

    async def run(self) -> None:
        """Inject one fault after another until the work is finished."""
        cluster = self.cluster
        while cluster.working and self._faults:
            await cluster.sleep(self.chance.uniform(0.1, 2) * self._pace_ms)
            if cluster.working:
                await self.chance.choice(self._faults)()

    def _machine(self) -> Machine | None:
        """Return a machine that may lose its disk, if there is one."""
        machines = self.cluster.machines.values()
        able = [one for one in machines if self.cluster.replicas.may_lose(one)]
        return self.chance.choice(able) if able else None

    def _begins(self, machine: Machine, fault: str) -> None:
        self.cluster.trace(f"disks: {fault} of {machine.name}")
        self.cluster.count(f"fault {fault}")
        machine.service.end(power_loss=self.chance.random() < 0.5)
        machine.service.disk_lost()

    async def lost_disk(self) -> None:
        """Empty all log directories of a broker."""
        machine = self._machine()
        if machine is not None:
            self._begins(machine, "lost_disk")
            self._lose(machine, machine.config.log_dirs)

    async def lost_log_directory(self) -> None:
        """Empty one log directory of a broker."""
        machine = self._machine()
        if machine is not None:
            self._begins(machine, "lost_log_directory")
            self._lose(machine, [self.chance.choice(machine.config.log_dirs)])

    def _lose(self, machine: Machine, log_dirs: Sequence[str]) -> None:
        kept = set()
        for log_dir in machine.config.log_dirs:
            if log_dir in log_dirs:
                machine.files.empty(log_dir)
            else:
                found = map(parse_partition_dir_name, machine.files.listdir(log_dir))
                kept |= {one.topic_partition for one in found if one and not one.state}
        self.cluster.replicas.disk_lost(machine, kept)
        if self.chance.random() < _ALL_KILLED:
            # The machine may return first, and is then the only member of the ISR that runs.
            for other in self.cluster.machines.values():
                other.service.end(power_loss=self.chance.random() < 0.5)

    async def older_disk(self) -> None:
        """Let a broker return with the content that its disk had a while ago."""
        machine = self.chance.choice(list(self.cluster.machines.values()))
        snapshot = machine.files.snapshot()
        await self.cluster.sleep(self.chance.uniform(0, 2) * self._pace_ms)
        replicas = self.cluster.replicas
        if self.cluster.working and replicas.may_return_old(machine):
            self._begins(machine, "older_disk")
            machine.files = machine.files.restored(snapshot)
            replicas.disk_restored(machine)

    async def lost_disk_of_joining_replica(self) -> None:
        """Lose the disk of a replica that is joining the ISR, and kill the controller.

        The leader repeats its request, to the next controller, when the replica may have restarted.
        """
        cluster = self.cluster
        for _ in range(_LOOKS):
            await cluster.sleep(_LOOK_MS)
            joining = [one for one in self._joining() if cluster.replicas.may_lose(one)]
            if joining and cluster.working:
                machine = self.chance.choice(joining)
                self._begins(machine, "lost_disk_of_joining_replica")
                self._lose(machine, machine.config.log_dirs)
                for other in cluster.machines.values():  # Unless it has been killed already.
                    if other.process is not None and other.process.is_controller:
                        other.service.end(power_loss=False)
                return

    def _joining(self) -> list[Machine]:
        """Return the machines that a leader has proposed as members of an ISR."""
        found: set[int] = set()
        for machine in self.cluster.machines.values():
            process = machine.process
            if process is None or not process.is_serving or process.is_controller:
                continue
            for partition in process.broker.replica_manager.topics.partitions.values():
                remote = partition.remote
                if remote is not None and remote.proposed is not None:
                    found |= set(remote.proposed) - set(remote.isr)
        return [self.cluster.machines[one] for one in sorted(found)]
