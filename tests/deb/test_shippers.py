"""Log shippers of Debian deliver every line while the broker restarts, is killed and is upgraded.

A shipper, with the settings of docs/operations.md, reads a file to which the test appends. The page
explains how a line may arrive twice: the tests count these lines and print the counts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.deb.clients import consume
from tests.deb.conftest import Boot, Record
from tests.deb.guest import Guest
from tests.deb.test_operations import blocks
from tests.deb.test_upgrade import upgrade
from tests.helpers.eventually import eventually

LINES = 100_000
NUMBERS = "/var/log/numbers.log"
_PIECE = 500


def test_rsyslog_delivers_every_line(
    boot: Boot, installed: list[Path], suite: str, figure: Record
) -> None:
    guest = boot(installed)
    guest.run("apt-get", "-qq", "-y", "install", "rsyslog", "rsyslog-kafka")
    guest.path("/etc/rsyslog.conf").write_text(_settings("rsyslog"))
    _deliver(guest, "rsyslog", suite, figure)


def test_syslog_ng_delivers_every_line(
    boot: Boot, installed: list[Path], suite: str, figure: Record
) -> None:
    guest = boot(installed)
    guest.run("apt-get", "-qq", "-y", "install", "syslog-ng-core", "syslog-ng-mod-rdkafka")
    guest.path("/etc/syslog-ng/syslog-ng.conf").write_text(_settings("syslog-ng"))
    _deliver(guest, "syslog-ng", suite, figure)


def _settings(shipper: str) -> str:
    [settings] = blocks("Ship logs with rsyslog or syslog-ng", shipper)
    return settings


def _deliver(guest: Guest, shipper: str, suite: str, figure: Record) -> None:
    """Append all lines during a restart, a kill and an upgrade, and compare what arrives."""
    numbers = guest.path(NUMBERS)
    numbers.touch()
    guest.run("systemctl", "restart", shipper)
    events: list[Callable[[], object]] = [
        lambda: guest.run("systemctl", "restart", "plog-broker"),
        lambda: guest.run("systemctl", "kill", "--signal=KILL", "plog-broker"),
        lambda: upgrade(guest, suite),
    ]
    share = LINES // (len(events) + 1)
    _append(numbers, range(share))
    for number, event in enumerate(events, 1):
        thread = threading.Thread(target=event)
        thread.start()
        _append(numbers, range(number * share, (number + 1) * share))
        thread.join()
    counts = eventually(lambda: _all_delivered(guest), f"delivery of all lines by {shipper}")
    repeated = sum(counts.values()) - LINES
    figure(f"{shipper}: lines delivered again, of {LINES:,}", repeated)


def _append(file: Path, numbers: range) -> None:
    with file.open("a") as lines:
        for first in range(numbers.start, numbers.stop, _PIECE):
            piece = range(first, min(first + _PIECE, numbers.stop))
            lines.write("".join(f"{number:06} {'x' * 60}\n" for number in piece))
            lines.flush()


def _all_delivered(guest: Guest) -> Counter[int] | None:
    """Return how often each number has arrived, or None if one is missing."""
    values = consume(guest, "numbers").splitlines()
    counts = Counter(int(value.split()[0]) for value in values if "x" * 60 in value)
    assert set(counts) <= set(range(LINES))
    return counts if len(counts) == LINES else None
