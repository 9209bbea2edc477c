"""How log events look: one line each on standard error, and no more of them than asked for.

``2026-01-31T12:00:00.000Z WARN plogd.net.listeners: text``; under systemd, where the journal adds
the time itself, ``<4>plogd.net.listeners: text`` with the syslog priority. Whatever an event's text
holds, it stays one line: what a client sends cannot forge another. Only a traceback brings lines of
its own, indented. Modules log through twisted.logger; service.py installs the observer made here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from twisted.logger import ILogObserver, LogLevel, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

_SYSLOG_PRIORITY = {
    LogLevel.debug: 7,
    LogLevel.info: 6,
    LogLevel.warn: 4,
    LogLevel.error: 3,
    LogLevel.critical: 2,
}
_IMPORTANCE = {level: 7 - priority for level, priority in _SYSLOG_PRIORITY.items()}
# What Twisted says of itself at "info" (factories, ports, web requests) helps only when debugging.
_CHATTY_NAMESPACES = ("twisted", "log_legacy")

_CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in [*range(32), 127, *range(128, 160)]}
_CONTROL_CHARACTERS |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_CONTROL_CHARACTERS |= {0x2028: "\\u2028", 0x2029: "\\u2029"}  # Line ends too, for some readers.


@implementer(ILogObserver)
class LineObserver:
    """Writes events of at least `level` as lines; the level may be changed at any time."""

    def __init__(self, write: Callable[[str], object], level: str, *, for_journal: bool) -> None:
        self._write = write
        self._for_journal = for_journal
        self.set_level(level)

    def set_level(self, level: str) -> None:
        """From now on write events of at least this level, a value of ``plog.log.level``."""
        self._least = _IMPORTANCE[LogLevel.levelWithName(level)]
        self._level = level

    @property
    def level(self) -> str:
        """What `set_level` was given last."""
        return self._level

    def writes(self, level: str) -> bool:
        """Whether events of this level are written."""
        return _IMPORTANCE[LogLevel.levelWithName(level)] >= self._least

    def __call__(self, event: Mapping[str, Any]) -> None:
        level = event.get("log_level") or LogLevel.info
        namespace = event.get("log_namespace") or "-"
        if level is LogLevel.info and namespace.partition(".")[0] in _CHATTY_NAMESPACES:
            level = LogLevel.debug
        if _IMPORTANCE[level] >= self._least:
            self._write(self._format(event, level, namespace))

    def _format(self, event: Mapping[str, Any], level: Any, namespace: str) -> str:
        lines = [f"{namespace}: {one_line(formatEvent(dict(event)))}"]
        failure = event.get("log_failure")
        if isinstance(failure, Failure):
            traceback = failure.getTraceback().rstrip("\n").split("\n")
            lines += [f"    {one_line(line)}" for line in traceback]
        if self._for_journal:
            prefix = f"<{_SYSLOG_PRIORITY[level]}>"
            return "".join(f"{prefix}{line}\n" for line in lines)
        lines[0] = f"{_iso_time(event.get('log_time', 0.0))} {level.name.upper()} {lines[0]}"
        return "".join(f"{line}\n" for line in lines)


def stream_observer(stream: TextIO, environment: Mapping[str, str], level: str) -> LineObserver:
    """An observer that writes to `stream`, in the journal's form if the journal reads it."""

    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return LineObserver(write, level, for_journal=_is_journal(stream, environment))


def one_line(text: str) -> str:
    """`text` with control characters and line ends made visible.

    >>> one_line("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    return text.translate(_CONTROL_CHARACTERS)


def _iso_time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether `stream` is the one systemd names by device and inode in ``JOURNAL_STREAM``."""
    named = environment.get("JOURNAL_STREAM", "")
    if not named:
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # Closed, or a stream without a descriptor.
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


@dataclass(slots=True)
class _Seen:
    last_ms: float
    suppressed: int = 0


class RateLimit:
    """Lets one event of a kind pass in each interval and counts the others.

    For events a peer can cause as often as it likes. Remembers `keys_max` kinds; beyond that it
    forgets the one that passed longest ago, so that many peers cannot fill the memory either.
    """

    def __init__(self, interval_ms: float, keys_max: int = 1000) -> None:
        self._interval_ms = interval_ms
        self._keys_max = keys_max
        self._seen: dict[Hashable, _Seen] = {}

    def admit(self, key: Hashable, now_ms: float) -> int | None:
        """None to keep quiet; else how many of this kind were kept quiet since the last."""
        seen = self._seen.get(key)
        if seen is not None and now_ms - seen.last_ms < self._interval_ms:
            seen.suppressed += 1
            return None
        # Removed and added again, so that the first key is always the one that passed longest ago.
        self._seen.pop(key, None)
        if len(self._seen) >= self._keys_max:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = _Seen(now_ms)
        return 0 if seen is None else seen.suppressed
