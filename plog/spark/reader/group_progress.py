"""`GroupProgress`: the progress of a stream as the committed offsets of a group (``commitGroup``).

Spark keeps the offsets of a query in its checkpoint, where tools that show consumer lag do not
look. The committed offsets are only for these tools: a query never reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from plog.errors import PlogError
from plog.types import TopicPartition

log = logging.getLogger("plog.spark")


# A group without members forgets its offsets after offsets.retention.minutes, 7 days by default
# (KIP-211).
_REPEAT_MS = 24 * 3_600_000
"""Time after which offsets that do not change are committed again."""
# Each attempt delays a batch.
_RETRY_MS = 60_000
"""Time without commits after an error."""


class GroupCommits(Protocol):
    """The request to a group's coordinator."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets` for a `group` without members. Raises a PlogError."""
        ...


class GroupProgress:
    """Commits the processed offsets of one query; without a `group` it does nothing."""

    def __init__(self, commits: GroupCommits, group: str | None) -> None:
        self._commits = commits
        self._group = group
        self._committed: dict[TopicPartition, int] = {}
        self._problem: str | None = None
        self._next_ms = self._repeat_ms = 0

    def report(self, processed: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Commit the offsets that have changed; an error is logged and does not fail the query.

        `now_ms` is a time that never goes back.
        """
        if self._group is None or now_ms < self._next_ms:
            return
        if now_ms >= self._repeat_ms:
            self._committed.clear()
            self._repeat_ms = now_ms + _REPEAT_MS
        changed = {
            partition: offset
            for partition, offset in processed.items()
            if self._committed.get(partition) != offset
        }
        if not changed:
            return
        try:
            self._commits.commit(self._group, changed)
        # The query does not depend on the commit, because its offsets are in the checkpoint.
        except PlogError as error:
            # Once per problem: a batch may take less than a second.
            if str(error) != self._problem:
                log.warning(
                    "cannot commit the progress of the query to group %s: %s; set commitGroup to"
                    " a group that no consumer uses, and that this client may write",
                    self._group,
                    error,
                )
            self._problem = str(error)
            self._next_ms = now_ms + _RETRY_MS
            return
        self._problem = None
        self._committed.update(changed)
