"""Internal invariants of the broker: the offsets of every log, checked after each event of a run.

The offsets keep a fixed order, and none of them ever falls within a life of the broker, except
while a log is truncated.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from tests.sim.checker import Anomaly

if TYPE_CHECKING:
    from plogd.broker import Broker
    from plogd.log.log import Log


class Offsets(NamedTuple):
    """The offsets of one log at one moment, in ascending order."""

    log_start: int
    high_watermark: int
    durable_end: int
    log_end: int


class Monitor:
    """Remembers the offsets at the previous check in this life."""

    def __init__(self) -> None:
        self._last: dict[Log, Offsets] = {}

    def new_life(self) -> None:
        """Discard all remembered offsets: they do not apply to the next process."""
        self._last.clear()

    def check(self, broker: Broker, truncating: Collection[Log] = ()) -> None:
        """Raise Anomaly if the offsets are out of order, or one has fallen since the last check.

        Ignores the logs that are being truncated.
        """
        for log in list(broker.log_manager.logs.values()):
            if log in truncating:
                self._last.pop(log, None)
                continue
            now = Offsets(
                log.log_start_offset,
                log.high_watermark,
                log.durable_end_offset,
                log.log_end_offset,
            )
            before = self._last.get(log)
            if now == before:
                continue
            name = str(log.topic_partition)
            if now.high_watermark > now.durable_end and log.config.flush_messages == 1:
                raise Anomaly("visible-before-durable", f"{name}: {now}")
            if not now.log_start <= now.high_watermark <= now.log_end >= now.durable_end:
                raise Anomaly("broken-invariant", f"{name}: {now}")
            if before is not None:
                for field, old, new in zip(Offsets._fields, before, now, strict=True):
                    if new < old:
                        raise Anomaly(
                            f"{field.replace('_', '-')}-fell", f"{name}: from {old} to {new}"
                        )
            self._last[log] = now
