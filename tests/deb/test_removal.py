"""Removal keeps settings and data; purge removes them from their default locations only."""

from __future__ import annotations

from pathlib import Path

from tests.deb.administration import add_settings
from tests.deb.clients import answers, consume, produce
from tests.deb.conftest import Boot
from tests.deb.test_instances import add_instance

DATA = "/var/lib/plog"


def test_removal_stops_all_brokers_and_keeps_settings_and_data(
    boot: Boot, installed: list[Path]
) -> None:
    guest = boot(installed)
    server = add_instance(guest, 1)
    add_settings(guest, "num.partitions=2")
    produce(guest, "kept", "hello\n")
    produce(guest, "kept", "hello from 1\n", server=server)
    guest.run("apt-get", "-qq", "-y", "remove", "plog-broker")
    assert not answers(guest)
    assert not answers(guest, server=server)
    assert guest.path(f"{DATA}/broker/.kafka_cleanshutdown").exists()
    assert guest.path("/etc/plog/conf.d/test.properties").exists()
    guest.run("apt-get", "-qq", "-y", "install", "plog-broker")
    assert sorted(consume(guest, "kept").splitlines()) == ["hello"]
    guest.run("systemctl", "start", "plog-broker@1")
    assert consume(guest, "kept", server=server) == "hello from 1\n"


def test_purge_removes_only_what_the_package_has_made(boot: Boot, installed: list[Path]) -> None:
    guest = boot(installed)
    add_instance(guest, 1)
    add_settings(guest, "num.partitions=2")
    produce(guest, "gone", "hello\n")
    guest.shell(
        """
        for folder in /srv/elsewhere /srv/mounted /etc/plog/agent /var/lib/plog/agent; do
            mkdir -p $folder
            echo kept >$folder/file
        done
        ln -s /srv/elsewhere /var/lib/plog/broker-8
        mkdir /var/lib/plog/broker-9
        mount --bind /srv/mounted /var/lib/plog/broker-9
        """
    )
    guest.run("apt-get", "-qq", "-y", "purge", "plog-broker")
    for path in (
        "/srv/elsewhere/file",
        "/srv/mounted/file",
        "/etc/plog/agent/file",
        "/var/lib/plog/agent/file",
    ):
        assert guest.path(path).read_text() == "kept\n"
    left = guest.shell("find /etc/plog /var/lib/plog | sort").splitlines()
    assert left == [
        "/etc/plog",
        "/etc/plog/agent",
        "/etc/plog/agent/file",
        "/var/lib/plog",
        "/var/lib/plog/agent",
        "/var/lib/plog/agent/file",
        "/var/lib/plog/broker-9",
        "/var/lib/plog/broker-9/file",
    ]
    assert guest.succeeds("getent", "passwd", "plog")
    assert guest.run("systemctl", "--failed", "--no-legend", "--plain") == ""
    guest.run("apt-get", "-qq", "-y", "install", "plog-broker")
    assert answers(guest)
