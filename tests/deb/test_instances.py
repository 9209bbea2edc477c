"""Several brokers on one host, each with its own settings and data."""

from __future__ import annotations

from pathlib import Path

from tests.deb.clients import answers, consume, produce
from tests.deb.conftest import Boot
from tests.deb.guest import Guest

EXAMPLE = "/usr/share/doc/plog-broker/examples/instance.properties"


def add_instance(guest: Guest, number: int) -> str:
    """Set up and start an instance as README.Debian describes; return its address."""
    server = f"127.0.0.1:{9092 + 100 * number}"
    folder = f"/etc/plog/broker-{number}"
    guest.shell(
        f"""
        mkdir {folder}
        sed s/127.0.0.1:9192/{server}/ {EXAMPLE} >{folder}/server.properties
        systemctl enable --quiet --now plog-broker@{number}
        """
    )
    assert answers(guest, server=server)
    return server


def test_instances_have_their_own_settings_data_and_slice(host: Guest) -> None:
    first, second = add_instance(host, 1), add_instance(host, 2)
    host.path("/etc/plog/broker-2/conf.d").mkdir()
    host.path("/etc/plog/broker-2/conf.d/local.properties").write_text("num.partitions=3\n")
    host.run("systemctl", "restart", "plog-broker@2")
    produce(host, "of-first", "one\n", server=first)
    produce(host, "of-second", "two\n", server=second)
    produce(host, "of-broker", "three\n")
    assert consume(host, "of-first", server=first) == "one\n"
    data = host.path("/var/lib/plog")
    assert (data / "broker-1/of-first-0").is_dir()
    assert {path.name for path in (data / "broker-2").glob("of-*")} == {
        f"of-second-{partition}" for partition in range(3)
    }
    assert (data / "broker/of-broker-0").is_dir()
    for number in (1, 2):
        assert host.show(f"plog-broker@{number}", "Slice") == "plog.slice"
    host.run("systemctl", "stop", "plog.slice")
    assert not answers(host, server=first)
    assert not answers(host, server=second)
    assert consume(host, "of-broker") == "three\n"


def test_instances_start_with_the_host(boot: Boot, installed: list[Path]) -> None:
    guest = boot(installed)
    server = add_instance(guest, 1)
    produce(guest, "first", "one\n", server=server)
    guest.power_off()
    guest.boot()
    assert consume(guest, "first", server=server) == "one\n"
