"""Figures that the tests measure and print at the end; a test never fails because of one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value, its unit, and the most that it should be."""

    suite: str
    name: str
    value: float
    target: float
    unit: str

    def __str__(self) -> str:
        verdict = "met" if self.value <= self.target else "MISSED"
        value = f"{self.value:.4g} {self.unit}".rstrip()
        return f"{self.suite:9} {self.name:62} {value:>10}  target {self.target:g}: {verdict}"
