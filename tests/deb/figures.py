"""Figures that the tests measure and print at the end; a test never fails because of one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value, its unit, and the most that it should be, or None."""

    suite: str
    name: str
    value: float
    target: float | None
    unit: str

    def __str__(self) -> str:
        value = f"{self.value:.4g} {self.unit}".rstrip()
        line = f"{self.suite:9} {self.name:62} {value:>10}"
        if self.target is None:
            return line
        verdict = "met" if self.value <= self.target else "MISSED"
        return f"{line}  target {self.target:g}: {verdict}"
