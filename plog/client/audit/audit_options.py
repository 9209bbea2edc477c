"""`AuditOptions`: the topics and the time range of an audit. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from plog.audit.counts import window_start_ms
from plog.audit.report import AUDIT_TOPIC
from plog.client.errors import ConfigError
from plog.errors import UnknownTopicOrPartition
from plog.settings import nearest_name

GRACE_S = 120
"""The default of `AuditOptions.grace_ms` in seconds: the default ``delivery.timeout.ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What an audit compares; without topics and pattern, all topics that reports name.

    Raises ConfigError if both are set, or if the pattern is not a regular expression.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression; selects topics whose names contain a match."""
    since_ms: int | None = None
    """Only windows that contain this time or start after it."""
    before_ms: int | None = None
    """Only windows that start before this time."""
    grace_ms: int = GRACE_S * 1000
    """In windows that ended less than this ago, records need not have been reported yet."""
    audited_only: bool = False
    """Whether to ignore records without the header of a producer."""

    def __post_init__(self) -> None:
        if self.topics and self.pattern is not None:
            raise ConfigError(["cannot choose topics: set either topics or a pattern"])
        if (
            self.since_ms is not None
            and self.before_ms is not None
            and self.since_ms >= self.before_ms
        ):
            raise ConfigError(["cannot audit the range: its end is not after its start"])
        if AUDIT_TOPIC in self.topics:
            raise ConfigError([f"cannot audit {AUDIT_TOPIC}: it contains the reports"])
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigError(
                    [f"cannot use {self.pattern!r} as a regular expression: {error}"]
                ) from None

    @property
    def first_ms(self) -> int | None:
        """The start of the first window, or None."""
        return None if self.since_ms is None else window_start_ms(self.since_ms)

    def chosen(self, existing: Collection[str], reported: Collection[str]) -> list[str]:
        """Return the topics to audit, sorted.

        Raises UnknownTopicOrPartition for a missing topic, and ConfigError if no topic is found.
        """
        for topic in self.topics:
            if topic not in existing:
                near = nearest_name(topic, existing)
                hint = f"; did you mean {near}?" if near else ""
                raise UnknownTopicOrPartition(
                    f"cannot audit {topic}: this topic does not exist{hint}"
                )
        names = set(self.topics)
        if self.pattern is not None:
            names = {name for name in existing if re.search(self.pattern, name)} - {AUDIT_TOPIC}
            if not names:
                raise ConfigError([f"cannot find topics to audit: {self.pattern!r} matches none"])
        elif not names:
            names = {name for name in reported if name in existing}
            if not names:
                raise ConfigError(
                    [
                        f"cannot find topics to audit: {AUDIT_TOPIC} names none that exist; set"
                        " plog.audit.enable=true in producers, or name topics"
                    ]
                )
        return sorted(names)
