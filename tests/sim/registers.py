"""The committed offset of one partition of one group, as a register that clients write and read.

Values only rise, and each is sent as one attempt or several. What a client does not hear the answer
of may take effect until its connection is gone at the broker, not later. So an attempt that was
over before another began, which was then acknowledged or shown, must never be shown again.
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
    """When nothing more of its connection arrives at the broker; infinite until then."""
    answered_ms: float = math.inf
    was_refused: bool = False
    """It was answered that the value is not kept."""

    @property
    def end_ms(self) -> float:
        """It takes effect before this, or not at all."""
        return min(self.answered_ms, self.connection_over_ms())


@dataclass(frozen=True, slots=True)
class Floor:
    """What was known when a read was sent: the newest value that must be there, or a later one."""

    value: int
    start_ms: float
    """What was over before this is overwritten."""


@dataclass(slots=True)
class Register:
    """See the module's text; told of each attempt, answer and read. `clock_ms` is virtual time."""

    name: str
    clock_ms: Callable[[], float]
    floor: Floor | None = None
    acknowledged_count: int = 0
    _attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    _last_value: int = 0

    def next_value(self) -> int:
        """A value larger than all before."""
        self._last_value += 1
        return self._last_value

    def sending(self, value: int, connection_over_ms: Callable[[], float]) -> Attempt:
        """A commit of `value` is about to be sent."""
        attempt = Attempt(value, self.clock_ms(), connection_over_ms)
        self._attempts.setdefault(value, []).append(attempt)
        return attempt

    def acknowledged(self, attempt: Attempt) -> None:
        """The broker says that it keeps the value."""
        attempt.answered_ms = self.clock_ms()
        self.acknowledged_count += 1
        self._raise_floor(Floor(attempt.value, attempt.start_ms))

    def refused(self, attempt: Attempt, *, for_certain: bool) -> None:
        """The broker says that it does not keep the value, or that it does not know."""
        attempt.answered_ms = self.clock_ms()
        attempt.was_refused = for_certain

    def shown(self, value: int, floor: Floor | None) -> None:
        """A read that was sent at `floor` shows `value`. Raises Anomaly."""
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
        # Which of several attempts it was cannot be told: the first says least.
        self._raise_floor(Floor(value, min(one.start_ms for one in possible)))

    def _raise_floor(self, floor: Floor) -> None:
        if self.floor is None or floor.start_ms >= self.floor.start_ms:
            self.floor = floor
