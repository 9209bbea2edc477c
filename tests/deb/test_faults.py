"""What goes wrong at an installation or a start, and what the administrator reads about it.

Each test takes the remedy that the message names, and the broker runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deb.administration import add_drop_in, add_settings
from tests.deb.clients import answers, consume, kcat, produce
from tests.deb.conftest import Boot
from tests.deb.guest import Guest
from tests.helpers.eventually import eventually

SETTINGS_ARE_WRONG = "2"
ONE_ATTEMPT = "Restart=no"
"""Without it, systemd makes five attempts; the test of a port in use waits for them."""


def restart(guest: Guest, unit: str = "plog-broker") -> None:
    """Start or restart a unit, also after it has failed too often."""
    guest.run("systemctl", "reset-failed", check=False)
    guest.run("systemctl", "restart", unit, check=False)


def fails_to_start(guest: Guest, unit: str = "plog-broker") -> str:
    """Restart a unit, wait until systemd has given up, and return what its status shows."""
    restart(guest, unit)
    eventually(lambda: guest.show(unit, "ActiveState") == "failed", f"failure of {unit}")
    return guest.run("systemctl", "status", "--lines=30", "--full", unit, check=False)


def test_port_in_use_fails_the_service_and_not_the_installation(
    boot: Boot, dependencies: list[Path]
) -> None:
    guest = boot(dependencies)
    program = "import socket; s = socket.create_server(('127.0.0.1', 9092)); print(); input()"
    other = subprocess.Popen(
        guest.in_network(sys.executable, "-c", program),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        start = time.monotonic()
        guest.run("apt-get", "-qq", "install", "-y", "plog-broker")
        eventually(lambda: guest.show("plog-broker", "ActiveState") == "failed", "failure")
        print(f"failed {time.monotonic() - start:.1f} s after the start of the installation")
        status = guest.run("systemctl", "status", "--full", "plog-broker", check=False)
        assert "127.0.0.1:9092" in status
        assert "listeners" in status
    finally:
        other.communicate(b"\n")
    restart(guest)
    assert answers(guest)


def test_wrong_setting_is_reported_with_its_line_and_not_retried(host: Guest) -> None:
    add_settings(host, "# A comment.", "log.segment.bytes=many")
    status = fails_to_start(host)
    assert "/etc/plog/conf.d/test.properties" in status
    assert "log.segment.bytes" in status
    assert host.show("plog-broker", "ExecMainStatus") == SETTINGS_ARE_WRONG
    assert host.show("plog-broker", "NRestarts") == "0"
    add_settings(host, "log.segment.bytes=1073741824")
    restart(host)
    assert answers(host)


def test_instance_without_its_file_names_the_example(host: Guest) -> None:
    status = fails_to_start(host, "plog-broker@7")
    example = "/usr/share/doc/plog-broker/examples/instance.properties"
    assert "/etc/plog/broker-7/server.properties" in status
    assert example in status
    assert host.show("plog-broker@7", "ExecMainStatus") == SETTINGS_ARE_WRONG
    host.shell(f"mkdir /etc/plog/broker-7 && cp {example} /etc/plog/broker-7/server.properties")
    restart(host, "plog-broker@7")
    assert answers(host, server="127.0.0.1:9192")


def test_data_directory_outside_the_sandbox_names_the_drop_in(host: Guest) -> None:
    host.run("install", "-d", "-o", "plog", "-g", "plog", "-m", "750", "/srv/data")
    add_settings(host, "log.dirs=/srv/data")
    add_drop_in(host, ONE_ATTEMPT)
    status = fails_to_start(host)
    assert "/srv/data" in status
    assert "ReadWritePaths=/srv/data" in status
    add_drop_in(host, "ReadWritePaths=/srv/data")
    restart(host)
    assert answers(host)


def test_data_directory_of_another_user_names_the_owner(host: Guest) -> None:
    host.run("install", "-d", "-m", "700", "/srv/data")
    add_settings(host, "log.dirs=/srv/data")
    add_drop_in(host, "ReadWritePaths=/srv/data", ONE_ATTEMPT)
    status = fails_to_start(host)
    assert "/srv/data" in status
    assert "chown" in status
    host.run("chown", "plog:plog", "/srv/data")
    restart(host)
    assert answers(host)


def test_data_directory_of_another_broker_names_both_ids(host: Guest) -> None:
    add_settings(host, "node.id=2")
    add_drop_in(host, ONE_ATTEMPT)
    status = fails_to_start(host)
    assert "/var/lib/plog/broker" in status
    assert "node.id" in status
    add_settings(host, "node.id=1")
    restart(host)
    assert answers(host)


def test_installation_on_a_full_disk_can_be_completed_later(
    boot: Boot, dependencies: list[Path]
) -> None:
    guest = boot(dependencies, disk="48m")
    fill = guest.path("/var/fill")
    guest.shell(
        "dd if=/dev/zero of=/var/fill bs=64k 2>/dev/null; truncate --size=-2M /var/fill",
        check=False,
    )
    done = guest.shell("apt-get -y install plog-broker && echo installed", check=False)
    assert "No space left on device" in done or "enough free space" in done
    assert not done.endswith("installed")
    fill.unlink()
    guest.run("apt-get", "-qq", "-y", "--fix-broken", "install")
    guest.run("apt-get", "-qq", "-y", "install", "plog-broker")
    eventually(lambda: answers(guest), "answer")


def test_full_disk_serves_reads_and_shows_in_the_status(boot: Boot, installed: list[Path]) -> None:
    guest = boot(installed, disk="96m")
    add_settings(guest, "plog.status.interval.ms=1000")
    guest.run("systemctl", "restart", "plog-broker")
    produce(guest, "kept", "hello\n")
    guest.shell("dd if=/dev/zero of=/var/lib/plog/fill bs=64k 2>/dev/null", check=False)
    with pytest.raises(AssertionError):
        kcat(
            guest,
            *("-P", "-t", "refused", "-X", "acks=all", "-X", "message.timeout.ms=3000"),
            stdin="x" * 500_000 + "\n",
        )
    assert consume(guest, "kept") == "hello\n"
    eventually(lambda: "space" in guest.show("plog-broker", "StatusText"), "status")
    guest.run("systemctl", "restart", "plog-broker")
    assert consume(guest, "kept") == "hello\n"
    eventually(lambda: "space" in guest.show("plog-broker", "StatusText"), "status")
    guest.path("/var/lib/plog/fill").unlink()
    produce(guest, "kept", "again\n")
    eventually(lambda: "space" not in guest.show("plog-broker", "StatusText"), "status")
    assert consume(guest, "kept") == "hello\nagain\n"


def test_limit_of_open_files_that_was_granted_is_logged(host: Guest) -> None:
    add_drop_in(host, "LimitNOFILE=4096")
    add_settings(host, "max.connections=5000")
    restart(host)
    assert answers(host)
    messages = host.messages("plog-broker")
    assert any("limit of 4096 open files" in line for line in messages)
    assert any("max.connections" in line and "LimitNOFILE" in line for line in messages)
