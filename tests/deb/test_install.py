"""Installation on a clean host, and what an installed broker does for its first clients."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.deb.administration import starts
from tests.deb.clients import answers, consume, produce
from tests.deb.conftest import Boot, Record
from tests.deb.guest import Guest
from tests.helpers.eventually import eventually


def lists_plugin(guest: Guest) -> bool:
    """Return whether Twisted's cache of plugins contains the broker."""
    cache = guest.path("/usr/lib/python3/dist-packages/twisted/plugins/dropin.cache")
    return b"plog_plugin" in cache.read_bytes()


@pytest.mark.alone
def test_broker_serves_clients_after_apt_install(boot: Boot, figure: Record) -> None:
    guest = boot()
    start = time.monotonic()
    guest.run("apt-get", "-qq", "install", "-y", "plog-broker")
    produce(guest, "first", "hello\n")
    figure(
        "apt install on a clean host -> first message acknowledged",
        time.monotonic() - start,
        target=15,
        unit="s",
    )
    assert consume(guest, "first") == "hello\n"
    assert guest.show("plog-broker", "ActiveState") == "active"
    assert guest.succeeds("systemctl", "is-enabled", "plog-broker")
    assert "compiled codec" in guest.run("plog", "--version")
    assert starts(guest, "plog-broker") == 1
    assert lists_plugin(guest)
    process = guest.show("plog-broker", "MainPID")
    [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", guest.run("cat", f"/proc/{process}/status"))
    figure("RSS of the fresh service", int(kilobytes) / 1024, target=75, unit="MB")


def test_files_of_a_release_can_be_installed_without_a_repository(
    boot: Boot, dependencies: list[Path], suite: str
) -> None:
    guest = boot(dependencies)
    guest.path("/etc/apt/sources.list.d/plog.list").unlink()
    guest.run("apt-get", "-qq", "update")
    guest.shell(f"cd /srv/packages/1/{suite} && apt-get -qq install -y ./*.deb kcat")
    test = (Path(__file__).parents[2] / "packaging/debian/tests/smoke").read_text()
    guest.run("sh", "-c", test)


def test_broker_starts_without_the_recommended_packages(
    boot: Boot, dependencies: list[Path]
) -> None:
    guest = boot(dependencies)
    guest.run("apt-get", "-qq", "install", "-y", "--no-install-recommends", "plog-broker")
    assert not guest.has_package("python3-plog-accel")
    produce(guest, "first", "hello\n")
    assert starts(guest, "plog-broker") == 1


def test_twisted_lists_the_plugin_until_the_package_is_removed(
    boot: Boot, dependencies: list[Path]
) -> None:
    guest = boot(dependencies)
    assert not lists_plugin(guest)
    guest.run("apt-get", "-qq", "install", "-y", "--no-install-recommends", "python3-plog")
    assert lists_plugin(guest)
    assert "plog" in guest.run("twistd3", "--help")
    guest.run("apt-get", "-qq", "remove", "-y", "python3-plog")
    assert not lists_plugin(guest)


def test_service_starts_with_the_host_and_after_it_was_killed(
    boot: Boot, installed: list[Path], figure: Record
) -> None:
    guest = boot(installed)
    produce(guest, "first", "hello\n")
    guest.run("systemctl", "stop", "plog-broker")
    start = time.monotonic()
    guest.run("systemctl", "start", "plog-broker")
    figure("systemctl start -> READY, no data", time.monotonic() - start, target=1.5, unit="s")
    start = time.monotonic()
    guest.run("systemctl", "kill", "--signal=KILL", "plog-broker")
    eventually(lambda: answers(guest), "answer after kill -9")
    figure("kill -9 -> answers", time.monotonic() - start, target=2.5, unit="s")
    assert guest.show("plog-broker", "NRestarts") == "1"
    assert consume(guest, "first") == "hello\n"
