"""The committed offset of one partition of one group, as a register that clients write and read.

Values only rise, and each is sent in one or several attempts. An attempt without a response may
take effect until its connection is closed at the broker, not later. So an attempt that ended before
another one began must never be shown after the other was acknowledged or shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sim.checker import Anomaly

NO_OFFSET = -1


@dataclass(slots=True, eq=False)
class Attempt:
    """One request that may write `value`."""

    value: int
    start_ms: float
    connection_over_ms: Callable[[], float]
    """When no more frames of its connection can arrive at the broker; infinite until then."""
    answered_ms: float = math.inf
    was_refused: bool = False
    """The response said that the value was not stored."""

    @property
    def end_ms(self) -> float:
        """The time after which the attempt can no longer take effect."""
        return min(self.answered_ms, self.connection_over_ms())


@dataclass(frozen=True, slots=True)
class Floor:
    """What was known when a read was sent: it must return this value or a later one."""

    value: int
    start_ms: float
    """Attempts that ended before this time have been overwritten."""


@dataclass(slots=True)
class Register:
    """The attempts and reads of one committed offset. `clock_ms` is virtual time."""

    name: str
    clock_ms: Callable[[], float]
    floor: Floor | None = None
    acknowledged_count: int = 0
    _attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    _last_value: int = 0

    def next_value(self) -> int:
        """Return a value larger than all before."""
        self._last_value += 1
        return self._last_value

    def sending(self, value: int, connection_over_ms: Callable[[], float]) -> Attempt:
        """Record that a commit of `value` is about to be sent."""
        attempt = Attempt(value, self.clock_ms(), connection_over_ms)
        self._attempts.setdefault(value, []).append(attempt)
        return attempt

    def acknowledged(self, attempt: Attempt) -> None:
        """Record that the broker acknowledged the value."""
        attempt.answered_ms = self.clock_ms()
        self.acknowledged_count += 1
        self._raise_floor(Floor(attempt.value, attempt.start_ms))

    def refused(self, attempt: Attempt, *, for_certain: bool) -> None:
        """Record that the broker rejected the value, or reported an unknown outcome."""
        attempt.answered_ms = self.clock_ms()
        attempt.was_refused = for_certain

    def shown(self, value: int, floor: Floor | None) -> None:
        """Check that a read sent at `floor` may return `value`. Raises Anomaly."""
        if value == NO_OFFSET:
            if floor is not None:
                raise Anomaly("spurious-reset", f"{self.name}: no offset, {floor.value} was known")
            return
        attempts = self._attempts.get(value, [])
        if not attempts:
            raise Anomaly("phantom-commit", f"{self.name}: {value} was never committed")
        possible = [one for one in attempts if not one.was_refused]
        if not possible:
            raise Anomaly("refused-commit-kept", f"{self.name}: {value} was refused")
        if floor is not None and all(one.end_ms < floor.start_ms for one in possible):
            raise Anomaly(
                "committed-offset-fell",
                f"{self.name}: {value}, after {floor.value} had been acknowledged or shown",
            )
        # Which of several attempts took effect is unknown: assume the first, which proves least.
        self._raise_floor(Floor(value, min(one.start_ms for one in possible)))

    def _raise_floor(self, floor: Floor) -> None:
        if self.floor is None or floor.start_ms >= self.floor.start_ms:
            self.floor = floor
