"""Clients of a group that are not in it: they commit first, look on, and read all at the end.

A group is founded by a commit from outside, and members begin after that. So it always has an
offset, is never forgotten as unused, and its generations count on through the whole run.
"""

from __future__ import annotations

from plog.errors import ErrorCode
from tests.sim.checker import Anomaly
from tests.sim.group_client import GroupClient
from tests.sim.group_history import Who
from tests.sim.network import ConnectionLost

_NOBODY = Who("", None)
_ATTEMPTS = 20


class Outsider(GroupClient):
    """Commits as an administrator does, where no member does, and reads all there is."""

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
        standing = self.view.standing(_NOBODY, -1)
        code = await self.commit(commits, standing, connection)
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            raise Anomaly("unexpected-error", f"{self.name} is in no generation: {code.name}")


class FinalOffsets(GroupClient):
    """Reads every committed offset of a group once all is over."""

    async def run(self) -> None:
        """Read until there is an answer; Raises Anomaly."""
        for attempt in range(_ATTEMPTS):
            try:
                if await self.read_offsets(None):
                    return
            except ConnectionLost:
                pass
            await self.world.sleep(100 * attempt)
        raise Anomaly("stuck", f"the offsets of {self.plan.name} could not be read")
