"""`Check`: one statement about the pipeline that must be true. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was expected, and what was found.

    >>> print(Check(name="rows in the warehouse", expected=2, found=1))
    NOT OK  rows in the warehouse: expected 2, found 1
    """

    name: str
    expected: object
    found: object

    @property
    def is_ok(self) -> bool:
        """Return whether both are equal."""
        return self.expected == self.found

    def __str__(self) -> str:
        if self.is_ok:
            return f"ok      {self.name}: {self.found}"
        return f"NOT OK  {self.name}: expected {self.expected}, found {self.found}"
