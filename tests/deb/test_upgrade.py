"""Upgrades and downgrades of a running host."""

from __future__ import annotations

from pathlib import Path

from tests.deb.administration import starts, use_version
from tests.deb.clients import assert_kept, consume, kcat, load_on, produce
from tests.deb.conftest import Boot, Record
from tests.deb.guest import Guest
from tests.deb.test_instances import add_instance

EDITED = "# Edited by the administrator.\nplog.log.level=info\n"
CONFFILE = "/etc/plog/server.properties"


def upgrade(guest: Guest, suite: str) -> str:
    """Upgrade to version 2 without a terminal; return what apt prints."""
    use_version(guest, 2, suite)
    return guest.run("apt-get", "-y", "upgrade")


def installed_version(guest: Guest) -> str:
    """Return the version of the package plog-broker."""
    return guest.run("dpkg-query", "-W", "-f", "${Version}", "plog-broker")


def test_upgrade_under_load_restarts_each_broker_once_and_loses_nothing(
    boot: Boot, installed: list[Path], suite: str, figure: Record
) -> None:
    guest = boot(installed)
    guest.path(CONFFILE).write_text(EDITED)
    server = add_instance(guest, 1)
    before = installed_version(guest)
    with load_on(guest, "first") as first, load_on(guest, "second", server=server) as second:
        upgrade(guest, suite)
        first.wait_for_acknowledgement()
        second.wait_for_acknowledgement()
        results = {"first": first.stop(), "second": second.stop()}
    assert installed_version(guest) != before
    assert guest.path(CONFFILE).read_text() == EDITED
    assert_kept(guest, "first", results["first"].acknowledged)
    assert_kept(guest, "second", results["second"].acknowledged, server=server)
    assert starts(guest, "plog-broker") == 2
    assert starts(guest, "plog-broker@1") == 2
    for unit in ("plog-broker", "plog-broker@1"):
        assert guest.show(unit, "TimeoutAbortUSec") == "31s"
    produce(guest, "new-default", "hello\n")
    assert '"new-default" with 2 partitions' in kcat(guest, "-L")
    gap = max(result.longest_gap_s for result in results.values())
    figure("upgrade under load: longest gap between acknowledgements", gap, target=5, unit="s")


def test_upgrade_leaves_a_deleted_conffile_alone_and_can_be_reversed(
    boot: Boot, installed: list[Path], suite: str
) -> None:
    guest = boot(installed)
    before = installed_version(guest)
    guest.path(CONFFILE).unlink()
    produce(guest, "kept", "hello\n")
    upgrade(guest, suite)
    assert not guest.path(CONFFILE).exists()
    produce(guest, "kept", "from the next version\n")
    use_version(guest, 1, suite)
    names = guest.shell("dpkg-query -W -f '${Package}\\n' '*plog*'").split()
    versions = [f"{name}={before}" for name in names]
    guest.run("apt-get", "-qq", "-y", "--allow-downgrades", "install", *versions)
    assert installed_version(guest) == before
    assert not guest.path(CONFFILE).exists()
    assert consume(guest, "kept") == "hello\nfrom the next version\n"


def test_upgrade_with_the_socket_unit_refuses_no_connection(
    boot: Boot, installed: list[Path], suite: str, figure: Record
) -> None:
    guest = boot(installed)
    guest.shell(
        """
        systemctl stop plog-broker
        systemctl enable --quiet --now plog-broker.socket
        systemctl start plog-broker
        """
    )
    before = starts(guest, "plog-broker")
    with load_on(guest, "first") as load:
        upgrade(guest, suite)
        load.wait_for_acknowledgement()
        result = load.stop()
    assert starts(guest, "plog-broker") == before + 1
    assert_kept(guest, "first", result.acknowledged)
    assert result.connections > 0
    assert result.refused == 0
    figure("upgrade with the socket unit: refused connections", result.refused, target=0, unit="")


def test_upgrade_with_needrestart_asks_nothing_and_leaves_a_linked_conffile_alone(
    boot: Boot, installed: list[Path], suite: str
) -> None:
    guest = boot(installed)
    guest.path("/srv/plog.properties").write_text(EDITED)
    conffile = guest.path(CONFFILE)
    conffile.unlink()
    conffile.symlink_to("/srv/plog.properties")
    guest.run("apt-get", "-qq", "-y", "install", "needrestart")
    upgrade(guest, suite)
    assert conffile.is_symlink()
    assert guest.path("/srv/plog.properties").read_text() == EDITED
    produce(guest, "first", "hello\n")
    assert starts(guest, "plog-broker") == 2
