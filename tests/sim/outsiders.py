"""Clients that use a group's offsets without joining: the first commit and the final reads.

A group is founded by a commit from outside, and members join afterwards. So it always has an
offset, is never removed as unused, and its generation numbers continue through the whole run.
"""

from __future__ import annotations

from plog.errors import ErrorCode
from tests.sim.checker import Anomaly
from tests.sim.group_client import GroupClient
from tests.sim.group_history import Membership
from tests.sim.network import ConnectionLost

_NO_MEMBER = Membership("", None)
# On a slow simulated disk, loading the offsets of 200 members took 20 s.
_ATTEMPTS = 40


class Outsider(GroupClient):
    """Commits as an administrator does, only where no member commits, and reads all offsets."""

    async def run(self) -> None:
        while self.world.working:
            await self.world.sleep(self.chance.uniform(1, 300))
            try:
                if not self.plan.is_founded() or self.chance.random() < 0.3:
                    await self._commit()
                elif self.chance.random() < 0.2:
                    await self.find_coordinator()
                else:
                    await self.read_offsets(None)
            except ConnectionLost:
                continue

    async def _commit(self) -> None:
        connection = await self.connected()
        commits = self.begin_commits([self.plan.outside], connection)
        standing = self.standing(_NO_MEMBER, -1, connection)
        code, _ = await self.commit(commits, standing, connection)
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            raise Anomaly("unexpected-error", f"{self.name} is not in a generation: {code.name}")


class FinalOffsets(GroupClient):
    """Reads every committed offset of a group at the end of the run."""

    async def run(self) -> None:
        """Retry until a response arrives. Raises Anomaly."""
        for attempt in range(_ATTEMPTS):
            try:
                if await self.read_offsets(None):
                    return
            except ConnectionLost:
                pass
            await self.world.sleep(100 * attempt)
        raise Anomaly("stuck", f"the offsets of {self.plan.name} could not be read")
