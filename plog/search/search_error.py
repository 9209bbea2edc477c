"""`SearchError`: an index cannot be read or written, or a query is wrong."""

from __future__ import annotations

from plog.error_base import PlogError


class SearchError(PlogError):
    """The message states what failed, why, and what to do."""
