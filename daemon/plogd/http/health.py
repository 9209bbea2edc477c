"""`Status`, the result of a health or readiness check, in a module that imports no HTTP code.

The checks are in service.py (`_health`, `_ready`); site.py answers ``/health`` and ``/ready``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The result of a check: whether it passed, and details as JSON values."""

    ok: bool
    details: Mapping[str, object]
