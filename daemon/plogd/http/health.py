"""What /health and /ready are told, apart from the pages so that it costs no import of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An answer to "are you well?": yes or no, and what there is to say (JSON values)."""

    ok: bool
    details: Mapping[str, object]
