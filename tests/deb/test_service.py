"""The service under systemd: reload, stop, status, watchdog, journal, TLS, a killed host."""

from __future__ import annotations

import time
from pathlib import Path

from tests.deb.administration import add_drop_in, add_settings
from tests.deb.clients import (
    SERVER,
    answers,
    assert_kept,
    consume,
    kcat,
    load_on,
    produce,
    wait_until_answering,
)
from tests.deb.conftest import Boot
from tests.deb.guest import Guest
from tests.helpers.certificates import Authority
from tests.helpers.eventually import eventually

DATA = "/var/lib/plog/broker"
START_TIMEOUT_S = 5
WATCHDOG_S = 2


def test_reload_applies_settings_and_keeps_the_process(host: Guest) -> None:
    pid = host.show("plog-broker", "MainPID")
    add_settings(host, "log.retention.ms=3600000")
    host.run("systemctl", "reload", "plog-broker")
    eventually(
        lambda: any("changed log.retention.ms" in line for line in host.messages("plog-broker")),
        "log line about the reload",
    )
    assert host.show("plog-broker", "MainPID") == pid


def test_stop_leaves_the_mark_of_a_clean_shutdown(host: Guest) -> None:
    mark = host.path(f"{DATA}/.kafka_cleanshutdown")
    produce(host, "first", "hello\n")
    assert not mark.exists()
    host.run("systemctl", "stop", "plog-broker")
    assert mark.exists()
    assert host.show("plog-broker", "Result") == "success"


def test_status_shows_addresses_and_partitions(host: Guest) -> None:
    add_settings(host, "plog.status.interval.ms=1000")
    host.run("systemctl", "restart", "plog-broker")
    produce(host, "first", "hello\n")
    eventually(lambda: "1 partition" in host.show("plog-broker", "StatusText"), "partitions")
    assert f"listening on {SERVER}" in host.run("systemctl", "status", "plog-broker")


def test_journal_finds_the_lines_of_a_topic(host: Guest) -> None:
    produce(host, "clicks", "hello\n")
    produce(host, "other", "hello\n")
    [*entries] = host.journal("PLOG_TOPIC=clicks")
    assert entries
    assert all("clicks" in str(entry["MESSAGE"]) for entry in entries)
    assert {entry["_SYSTEMD_UNIT"] for entry in entries} == {"plog-broker.service"}
    assert {str(entry["PLOG_MODULE"]).partition(".")[0] for entry in entries} == {"plogd"}


def test_watchdog_restarts_a_stopped_process_and_keeps_what_was_acknowledged(host: Guest) -> None:
    add_drop_in(host, f"WatchdogSec={WATCHDOG_S}s", "TimeoutAbortSec=5s")
    host.run("systemctl", "restart", "plog-broker")
    with load_on(host, "watched") as load:
        host.run("systemctl", "kill", "--signal=STOP", "plog-broker")
        eventually(lambda: host.show("plog-broker", "NRestarts") == "1", "restart")
        load.wait_for_acknowledgement()
        result = load.stop()
    assert any("Watchdog timeout" in str(entry["MESSAGE"]) for entry in host.journal("-n", "500"))
    assert_kept(host, "watched", result.acknowledged)


def test_watchdog_leaves_an_idle_broker_alone(host: Guest) -> None:
    add_drop_in(host, f"WatchdogSec={WATCHDOG_S}s")
    host.run("systemctl", "restart", "plog-broker")
    start = time.monotonic()
    eventually(lambda: time.monotonic() - start > 4 * WATCHDOG_S, "end of the wait")
    assert host.show("plog-broker", "NRestarts") == "0"


def test_host_that_was_killed_returns_with_everything_acknowledged(
    boot: Boot, installed: list[Path]
) -> None:
    guest = boot(installed)
    with load_on(guest, "survivors") as load:
        load.wait_for_acknowledgement()
        guest.run("systemctl", "kill", "--signal=STOP", "plog-broker")
        guest.run("systemctl", "kill", "--signal=KILL", "plog-broker")
        load.wait_for_acknowledgement()
        result = load.stop()
    guest.kill()
    guest.boot()
    wait_until_answering(guest)
    assert_kept(guest, "survivors", result.acknowledged)


def test_stop_during_recovery_ends_and_the_next_start_recovers(
    boot: Boot, installed: list[Path]
) -> None:
    guest = boot(installed)
    kcat(guest, "-P", "-t", "large", "-X", "acks=all", stdin=_lines(megabytes=300))
    guest.run("systemctl", "kill", "--signal=KILL", "plog-broker")
    guest.run("systemctl", "stop", "plog-broker")
    guest.run("systemctl", "start", "--no-block", "plog-broker")
    eventually(
        lambda: guest.show("plog-broker", "SubState") in ("start", "running"), "start of the broker"
    )
    guest.run("systemctl", "stop", "plog-broker", timeout_s=60)
    assert guest.show("plog-broker", "ActiveState") in ("inactive", "failed")
    guest.run("systemctl", "start", "plog-broker")
    assert answers(guest)
    assert consume(guest, "large") == _lines(megabytes=300)


def test_recovery_that_takes_longer_than_the_start_timeout_is_not_interrupted(
    boot: Boot, installed: list[Path]
) -> None:
    guest = boot(installed)
    create = f"plog topics --bootstrap-server {SERVER} --create --topic many --partitions 3000"
    guest.run(*create.split())
    kcat(guest, "-P", "-t", "many", "-X", "acks=all", stdin=_lines(megabytes=5))
    guest.run("systemctl", "kill", "--signal=KILL", "plog-broker")
    guest.run("systemctl", "stop", "plog-broker")
    add_drop_in(guest, f"TimeoutStartSec={START_TIMEOUT_S}s")
    guest.run("systemctl", "start", "--no-block", "plog-broker")

    def is_recovering() -> bool:
        """Return whether the broker recovers, and leave it stopped in that case.

        It is stopped during each check, so that a fast machine does not miss the recovery.
        """
        guest.succeeds("systemctl", "kill", "--signal=STOP", "plog-broker")
        if "recovering" in guest.show("plog-broker", "StatusText"):
            return True
        guest.succeeds("systemctl", "kill", "--signal=CONT", "plog-broker")
        return False

    eventually(is_recovering, "recovery")
    start = time.monotonic()
    eventually(lambda: time.monotonic() - start > 2 * START_TIMEOUT_S, "end of the wait")
    assert guest.show("plog-broker", "ActiveState") == "activating"
    guest.run("systemctl", "kill", "--signal=CONT", "plog-broker")
    eventually(lambda: guest.show("plog-broker", "ActiveState") == "active", "end of the recovery")
    assert guest.show("plog-broker", "NRestarts") == "0"
    assert sorted(consume(guest, "many").splitlines()) == _lines(megabytes=5).splitlines()


def test_tls_and_large_fetches_work_in_the_sandbox(host: Guest, tmp_path: Path) -> None:
    authority = Authority()
    truststore = authority.truststore(tmp_path / "ca.pem")
    keystore = host.path("/etc/plog/broker.pem")
    authority.server().keystore(keystore)
    host.shell("chown root:plog /etc/plog/broker.pem && chmod 640 /etc/plog/broker.pem")
    add_settings(
        host,
        f"listeners=PLAINTEXT://{SERVER},SSL://127.0.0.1:9093",
        "ssl.keystore.type=PEM",
        "ssl.keystore.location=/etc/plog/broker.pem",
    )
    host.run("systemctl", "restart", "plog-broker")
    secure = ("-X", "security.protocol=ssl", "-X", f"ssl.ca.location={truststore}")
    text = _lines(megabytes=20)
    kcat(host, "-P", "-t", "large", "-X", "acks=all", *secure, server="127.0.0.1:9093", stdin=text)
    assert kcat(host, "-C", "-t", "large", "-e", "-q", *secure, server="127.0.0.1:9093") == text
    assert consume(host, "large") == text


def _lines(*, megabytes: int) -> str:
    return "".join(f"{number:0199}\n" for number in range(megabytes * 5000))
