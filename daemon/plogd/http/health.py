"""The checks of the pages ``/health`` and ``/ready``, and their result, `Status`.

site.py responds with the results. This module imports no HTTP code, so that the checks do not
depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from plog.types import TopicPartition
from plog.version import VERSION
from plogd.broker import Broker
from plogd.ports import Later, MaybeLater, spawn

_NAMES_MAX: Final = 10
"""Maximum number of partitions that a status names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The result of a check: whether it passed, and details as JSON values."""

    ok: bool
    details: Mapping[str, object]


class Checks:
    """The checks of one broker; `is_serving` returns whether it accepts connections."""

    def __init__(self, broker: Broker, is_serving: Callable[[], bool]) -> None:
        self._broker = broker
        self._is_serving = is_serving

    def health(self) -> Status:
        """Return whether the operator has nothing to repair."""
        offline = self._broker.log_manager.offline_dirs
        return Status(ok=not offline, details={"offlineLogDirs": offline})

    def ready(self) -> Status:
        """Return whether the broker serves requests."""
        return Status(ok=self._broker.is_ready and self._is_serving(), details={"version": VERSION})

    def in_sync(self) -> MaybeLater[Status]:
        """Return whether the broker is ready and all its replicas are in sync.

        During a rolling restart, the next broker can be stopped then.
        """
        ready, replicas = self.ready(), self._broker.cluster_replicas
        # A single broker has no other replicas that could be ahead.
        if not ready.ok or replicas is None:
            return ready
        return spawn(self._in_sync(replicas.out_of_sync()))

    async def _in_sync(self, finding: Later[list[TopicPartition]]) -> Status:
        found = await finding
        ready = self.ready()  # The broker may have begun to stop in the meantime.
        details = {
            **ready.details,
            "outOfSync": len(found),
            "partitions": [str(each) for each in found[:_NAMES_MAX]],
        }
        return Status(ok=ready.ok and not found, details=details)
