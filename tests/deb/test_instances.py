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


def test_instances_have_their_own_settings_data_and_slice(
    boot: Boot, installed: list[Path]
) -> None:
    guest = boot(installed)
    first, second = add_instance(guest, 1), add_instance(guest, 2)
    guest.path("/etc/plog/broker-2/conf.d").mkdir()
    guest.path("/etc/plog/broker-2/conf.d/local.properties").write_text("num.partitions=3\n")
    guest.run("systemctl", "restart", "plog-broker@2")
    produce(guest, "of-first", "one\n", server=first)
    produce(guest, "of-second", "two\n", server=second)
    produce(guest, "of-broker", "three\n")
    assert consume(guest, "of-first", server=first) == "one\n"
    data = guest.path("/var/lib/plog")
    assert (data / "broker-1/of-first-0").is_dir()
    assert {path.name for path in (data / "broker-2").glob("of-*")} == {
        f"of-second-{partition}" for partition in range(3)
    }
    assert (data / "broker/of-broker-0").is_dir()
    for number in (1, 2):
        assert guest.show(f"plog-broker@{number}", "Slice") == "plog.slice"
    guest.run("systemctl", "stop", "plog.slice")
    assert not answers(guest, server=first)
    assert not answers(guest, server=second)
    assert consume(guest, "of-broker") == "three\n"


def test_instances_start_with_the_host(boot: Boot, installed: list[Path]) -> None:
    guest = boot(installed)
    server = add_instance(guest, 1)
    produce(guest, "first", "one\n", server=server)
    guest.power_off()
    guest.boot()
    assert consume(guest, "first", server=server) == "one\n"
