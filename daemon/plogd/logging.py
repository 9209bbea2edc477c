"""Log output: a log event is one line on standard error, filtered by level and rate.

A line has the form ``2026-01-31T12:00:00.000Z WARN plogd.net.listeners: text``. If systemd's
journal reads standard error, an event becomes an entry with fields (journal.py). If the journal's
socket is missing, it becomes the line ``<4>plogd.net.listeners: text``, which starts with the
syslog priority. Control characters are escaped, so text from a client cannot forge another line.
Only a traceback adds lines, which are indented. Modules log through twisted.logger; service.py
installs the observer.
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

from plogd.journal import (
    IDENTIFIER,
    NATIVE_SOCKET,
    JournalSender,
    JournalWriter,
    context_fields,
)

_VALUE_CHARACTERS_MAX = 256
"""Long enough for any topic name, which has up to 249 characters; a client id may be longer."""
_SYSLOG_PRIORITY = {
    LogLevel.debug: 7,
    LogLevel.info: 6,
    LogLevel.warn: 4,
    LogLevel.error: 3,
    LogLevel.critical: 2,
}
_IMPORTANCE = {level: 7 - priority for level, priority in _SYSLOG_PRIORITY.items()}
# Twisted's own "info" events (factories, ports, web requests) are useful only for debugging.
_CHATTY_NAMESPACES = ("twisted", "log_legacy")

# The control characters of C0 and C1, and DEL, which terminals may interpret.
_CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in [*range(32), 127, *range(128, 160)]}
_CONTROL_CHARACTERS |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_CONTROL_CHARACTERS |= {0x2028: "\\u2028", 0x2029: "\\u2029"}  # Some readers split lines at these.


@implementer(ILogObserver)
class LineObserver:
    """Writes log events of at least `level`; the level may change at any time.

    Args:
        to: a function that writes a line, or a writer of journal entries.
    """

    def __init__(self, to: Callable[[str], object] | JournalWriter, level: str) -> None:
        self._to = to
        self.set_level(level)

    def set_level(self, level: str) -> None:
        """Write only events of at least `level`, a value of ``plog.log.level``."""
        self._least = _IMPORTANCE[LogLevel.levelWithName(level)]
        self._level = level

    @property
    def level(self) -> str:
        """The current level, as passed to `set_level`."""
        return self._level

    def writes(self, level: str) -> bool:
        """Return whether events of this level are written."""
        return _IMPORTANCE[LogLevel.levelWithName(level)] >= self._least

    def __call__(self, event: Mapping[str, Any]) -> None:
        level = event.get("log_level") or LogLevel.info
        namespace = event.get("log_namespace") or "-"
        if level is LogLevel.info and namespace.partition(".")[0] in _CHATTY_NAMESPACES:
            level = LogLevel.debug
        if _IMPORTANCE[level] >= self._least:
            self._write(event, level, namespace)

    def _write(self, event: Mapping[str, Any], level: Any, namespace: str) -> None:
        lines = [one_line(formatEvent(dict(event))), *_traceback(event)]
        first = f"{namespace}: {lines[0]}"
        if isinstance(self._to, JournalWriter):
            priority = _SYSLOG_PRIORITY[level]
            # Every line has the prefix, because the journal reads each line as a separate entry.
            prefixed = "".join(f"<{priority}>{line}\n" for line in [first, *lines[1:]])
            self._to.write(_entry(event, "\n".join(lines), priority, namespace), prefixed)
            return
        lines[0] = f"{_iso_time(event.get('log_time', 0.0))} {level.name.upper()} {first}"
        self._to("".join(f"{line}\n" for line in lines))


def _traceback(event: Mapping[str, Any]) -> list[str]:
    failure = event.get("log_failure")
    if not isinstance(failure, Failure):
        return []
    traceback = failure.getTraceback().rstrip("\n").split("\n")
    return [f"    {one_line(line)}" for line in traceback]


def _entry(
    event: Mapping[str, Any], message: str, priority: int, namespace: str
) -> list[tuple[str, str]]:
    context = context_fields(event)
    return [
        ("MESSAGE", message),
        ("PRIORITY", str(priority)),
        IDENTIFIER,
        ("PLOG_MODULE", namespace),
        *((name, one_line(value)[:_VALUE_CHARACTERS_MAX]) for name, value in context),
    ]


def stream_observer(
    stream: TextIO,
    environment: Mapping[str, str],
    level: str,
    *,
    journal_socket: str = NATIVE_SOCKET,
) -> LineObserver:
    """Return an observer that writes to `stream`, or to the journal that reads `stream`."""
    if _is_journal(stream, environment):
        writer = JournalWriter(JournalSender(journal_socket), stream.fileno())
        return LineObserver(writer, level)

    def write(text: str) -> None:
        stream.write(text)
        # Otherwise, a crash would lose the lines that explain it.
        stream.flush()

    return LineObserver(write, level)


def one_line(text: str) -> str:
    """Return `text` with control characters and line ends escaped.

    >>> one_line("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    return text.translate(_CONTROL_CHARACTERS)


def _iso_time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether ``JOURNAL_STREAM`` contains the device and inode of `stream`."""
    named = environment.get("JOURNAL_STREAM", "")
    if not named:
        return False
    try:
        status = os.fstat(stream.fileno())
    # The stream is closed, or has no descriptor.
    except (OSError, ValueError):
        return False
    # systemd.exec(5): the variable is still set if standard error was redirected to a file.
    return named == f"{status.st_dev}:{status.st_ino}"


@dataclass(slots=True)
class _Seen:
    last_ms: float
    suppressed: int = 0


class RateLimit:
    """A rate limit for log events: one event per key and interval passes; the others are counted.

    It is meant for events that a peer can cause at will. At most `keys_max` keys are remembered;
    beyond that, the key that passed longest ago is dropped.
    """

    def __init__(self, interval_ms: float, keys_max: int = 1000) -> None:
        self._interval_ms = interval_ms
        self._keys_max = keys_max
        self._seen: dict[Hashable, _Seen] = {}

    def admit(self, key: Hashable, now_ms: float) -> int | None:
        """Return the number of events suppressed before this one, or None to suppress this one."""
        seen = self._seen.get(key)
        if seen is not None and now_ms - seen.last_ms < self._interval_ms:
            seen.suppressed += 1
            return None
        # Reinserted, so that the first key is always the one that passed longest ago.
        self._seen.pop(key, None)
        # Otherwise, a large number of peers could exhaust memory.
        if len(self._seen) >= self._keys_max:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = _Seen(now_ms)
        return 0 if seen is None else seen.suppressed
