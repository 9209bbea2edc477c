"""Format the status that ``systemctl status`` shows: startup or shutdown progress, broker state.

Pure functions; supervision.py calls them and sends the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plogd.log.recovery.load_progress import LoadAmount

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes received and sent per second."""

    bytes_in: float
    bytes_out: float


def bytes_text(nbytes: float, of: float | None = None) -> str:
    """Return a number of bytes in decimal units; with `of`, a part and its whole in the same unit.

    >>> bytes_text(1_234_567), bytes_text(999.7), bytes_text(0)
    ('1.2 MB', '1.0 kB', '0 B')
    >>> bytes_text(4_100_000_000, of=9_000_000_000)
    '4.1 of 9.0 GB'
    """
    whole = nbytes if of is None else of
    power = 0
    # The next unit starts early, because 999.95 would be shown as 1000.0.
    while power < len(_UNITS) - 1 and whole >= (999.5 if power == 0 else 999.95 * 1000**power):
        power += 1
    shown = [f"{n / 1000**power:.{1 if power else 0}f}" for n in (nbytes, whole)]
    number = shown[0] if of is None else " of ".join(shown)
    return f"{number} {_UNITS[power]}"


def loading_text(amount: LoadAmount) -> str:
    """Return the progress of the startup.

    >>> loading_text(LoadAmount(12, 300, 4_100_000_000, 9_000_000_000))
    'recovering 12 of 300 logs, 4.1 of 9.0 GB'
    >>> loading_text(LoadAmount(logs=12, total_logs=300))
    'loading 12 of 300 logs'
    """
    logs = f"{amount.logs} of {amount.total_logs} logs"
    # After a clean shutdown, no log has to be scanned, so there are no bytes to show.
    if not amount.total_bytes:
        return f"loading {logs}"
    return f"recovering {logs}, {bytes_text(amount.scanned_bytes, of=amount.total_bytes)}"


def closing_text(closed_logs: int, total_logs: int) -> str:
    """Return the progress of the shutdown.

    >>> closing_text(0, 300), closing_text(12, 300)
    ('stopping', 'stopping: closed 12 of 300 logs')
    """
    if not closed_logs:
        return "stopping"
    return f"stopping: closed {closed_logs} of {total_logs} logs"


def serving_text(
    addresses: str, problems: Sequence[str], partitions: int, connections: int, traffic: Traffic
) -> str:
    """Return the state of a broker that serves requests.

    >>> serving_text("127.0.0.1:9092", [], 300, 12, Traffic(bytes_in=1.2e6, bytes_out=0))
    'listening on 127.0.0.1:9092; 300 partitions, 12 connections; in 1.2 MB/s, out 0 B/s'
    """
    parts = [
        f"listening on {addresses}",
        *problems,
        f"{_count(partitions, 'partition')}, {_count(connections, 'connection')}",
        f"in {bytes_text(traffic.bytes_in)}/s, out {bytes_text(traffic.bytes_out)}/s",
    ]
    return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _count(0, "partition"), _count(1, "partition")
    ('0 partitions', '1 partition')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
