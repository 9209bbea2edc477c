"""`Status`, the result of a health or readiness check.

The checks are in service.py (`_health`, `_ready`); site.py answers ``/health`` and ``/ready``. This
module imports no HTTP code, so that the checks do not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The result of a check: whether it passed, and details as JSON values."""

    ok: bool
    details: Mapping[str, object]
