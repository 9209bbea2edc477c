"""`SqlOptions`: the query of the job ``sql``, and what it reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plog.settings import ConfigError

SAMPLE_SIZE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """A query, the cluster with the settings of its client, and the time range of the records.

    The range is that of the records' timestamps, from `since_ms` to before `before_ms`, in ms since
    1970; None is no limit.
    """

    client: Mapping[str, str]
    query: str
    since_ms: int | None = None
    before_ms: int | None = None
    sample_size: int = SAMPLE_SIZE
    """The number of records of each partition in which fields are found; 0 for none."""

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise ConfigError(["cannot run the query: it is empty; write SELECT … FROM TOPIC"])
        since_ms, before_ms = self.since_ms, self.before_ms
        if since_ms is not None and before_ms is not None and since_ms >= before_ms:
            raise ConfigError(["cannot use the time range: its end is not after its start"])

    @property
    def uses_headers(self) -> bool:
        """Return whether the query may use the column ``_headers``, which is costly to read."""
        # The text is searched, because Spark can analyze the query only when its tables exist. A
        # match in a literal only costs time.
        return "_headers" in self.query.lower()
