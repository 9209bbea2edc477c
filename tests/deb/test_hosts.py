"""Hosts that differ from the usual: ppp, no compiled codec, only the modules, no systemd."""

from __future__ import annotations

from pathlib import Path

from tests.deb.clients import SERVER, answers, produce
from tests.deb.conftest import Boot

_TEST = """
def test_broker_of_the_fixture_serves(plog_broker, plog_topic):
    from plog import Consumer, Producer

    servers = plog_broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(plog_topic, b"hello").result()
    with Consumer(
        plog_topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        assert next(consumer).value == b"hello"
"""


def test_host_with_ppp_gets_the_broker_and_keeps_ppp(boot: Boot, dependencies: list[Path]) -> None:
    guest = boot(dependencies)
    guest.run("apt-get", "-qq", "-y", "install", "ppp")
    guest.run("apt-get", "-qq", "-y", "install", "plog-broker")
    assert guest.run("dpkg", "--search", "/usr/bin/plog") == "ppp: /usr/bin/plog"
    assert not guest.has_package("plog-tools")
    produce(guest, "first", "hello\n")
    listed = guest.run(
        "python3", "-m", "plog.cli", *f"topics --bootstrap-server {SERVER} --list".split()
    )
    assert listed == "first"


def test_host_without_the_compiled_codec_runs_the_source(
    boot: Boot, dependencies: list[Path]
) -> None:
    guest = boot(dependencies)
    guest.run(
        "apt-get", "-qq", "-y", "install", "--no-install-recommends", "plog-broker", "plog-tools"
    )
    assert not guest.has_package("python3-plog-accel")
    assert "compiled" not in guest.run("plog", "--version")
    produce(guest, "first", "hello\n")


def test_pytest_runs_on_a_host_with_only_the_modules(boot: Boot, dependencies: list[Path]) -> None:
    guest = boot(dependencies)
    guest.run(
        *("apt-get", "-qq", "-y", "install", "--no-install-recommends", "python3-plog"),
        "python3-pytest",
    )
    guest.path("/srv/test_broker.py").write_text(_TEST)
    guest.shell("cd /srv && python3 -m pytest -q -p no:cacheprovider test_broker.py")
    assert not guest.succeeds("test", "-e", "/usr/bin/plog-broker")


def test_packages_can_be_installed_and_purged_in_a_chroot(
    boot: Boot, dependencies: list[Path], suite: str
) -> None:
    guest = boot(dependencies)
    guest.shell(
        """
        mkdir -p /srv/root /srv/lower
        mount --bind / /srv/lower
        mkdir /run/copy && mount -t tmpfs copy /run/copy && mkdir /run/copy/upper /run/copy/work
        mount -t overlay -o lowerdir=/srv/lower,upperdir=/run/copy/upper,workdir=/run/copy/work \
            copy /srv/root
        mount --rbind /srv/debian /srv/root/srv/debian
        mount --rbind /srv/packages /srv/root/srv/packages
        mount -t proc proc /srv/root/proc
        chroot /srv/root apt-get -qq -y install plog-broker
        chroot /srv/root plog-broker --version
        chroot /srv/root apt-get -qq -y purge plog-broker
        test ! -e /srv/root/etc/plog
        """
    )
    assert not answers(guest)
