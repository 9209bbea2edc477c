"""Log shippers of Debian deliver every line while the broker restarts, is killed and is upgraded.

A shipper reads a file to which the test appends. librdkafka, which both use, sends again what was
not acknowledged. With idempotence it does so without duplicates, but the shippers' own retries may
repeat lines: the tests count them and print the counts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.deb.clients import consume
from tests.deb.conftest import Boot
from tests.deb.guest import Guest
from tests.deb.test_upgrade import upgrade
from tests.helpers.eventually import eventually

LINES = 100_000
NUMBERS = "/var/log/numbers.log"
_PIECE = 500

_RSYSLOG = f"""
module(load="imfile" mode="inotify")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{NUMBERS}" tag="numbers" ruleset="plog")
ruleset(name="plog") {{
    action(
        type="omkafka" broker=["127.0.0.1:9092"] topic="numbers" template="line"
        confParam=["acks=all", "enable.idempotence=true", "reconnect.backoff.max.ms=500"]
        resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="/var/spool/rsyslog/failed"
        action.resumeRetryCount="-1" action.resumeInterval="1"
        queue.type="LinkedList" queue.filename="plog" queue.size="200000" queue.saveOnShutdown="on"
    )
}}
"""

_SYSLOG_NG = f"""@version: 3.38
options {{ keep-hostname(yes); stats-freq(0); }};
source numbers {{ file("{NUMBERS}" follow-freq(0.2) flags(no-parse)); }};
destination plog {{
    kafka-c(
        bootstrap-servers("127.0.0.1:9092")
        topic("numbers")
        message("$MSG")
        config("acks"("all") "enable.idempotence"("true") "reconnect.backoff.max.ms"("500"))
        disk-buffer(reliable(yes) disk-buf-size(67108864) mem-buf-size(16777216))
    );
}};
log {{ source(numbers); destination(plog); flags(flow-control); }};
"""


def test_rsyslog_delivers_every_line(boot: Boot, installed: list[Path], suite: str) -> None:
    guest = boot(installed)
    guest.run("apt-get", "-qq", "-y", "install", "rsyslog", "rsyslog-kafka")
    guest.path("/etc/rsyslog.conf").write_text(_RSYSLOG)
    _deliver(guest, "rsyslog", suite)


def test_syslog_ng_delivers_every_line(boot: Boot, installed: list[Path], suite: str) -> None:
    guest = boot(installed)
    guest.run("apt-get", "-qq", "-y", "install", "syslog-ng-core", "syslog-ng-mod-rdkafka")
    guest.path("/etc/syslog-ng/syslog-ng.conf").write_text(_SYSLOG_NG)
    _deliver(guest, "syslog-ng", suite)


def _deliver(guest: Guest, shipper: str, suite: str) -> None:
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
    print(f"{suite}: {shipper} delivered {LINES} lines, {repeated} of them twice")


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
