"""The commands of docs/operations.md, in the order of the page, on one host."""

from __future__ import annotations

import re
from pathlib import Path

from tests.deb.administration import use_version
from tests.deb.clients import answers, consume, kcat, produce
from tests.deb.conftest import Boot
from tests.deb.guest import Guest
from tests.deb.test_upgrade import installed_version
from tests.helpers.certificates import Authority
from tests.helpers.eventually import eventually

PAGE = Path(__file__).parents[2] / "docs/operations.md"


def blocks(heading: str, language: str = "sh") -> list[str]:
    """Return the shell commands or settings below a heading of the page, one string per block."""
    section = re.search(rf"\n## {re.escape(heading)}\n(.*?)(?=\n## |\Z)", PAGE.read_text(), re.S)
    assert section is not None, heading
    found = re.findall(rf"```{language}\n(.*?)```", section[1], re.S)
    assert found, heading
    return found


def follow(guest: Guest, heading: str) -> str:
    """Run the commands below a heading in the guest; return their output."""
    # An administrator takes longer: systemd counts manual starts, too, and permits few at a time.
    guest.run("systemctl", "reset-failed", "plog-broker")
    return "\n".join(guest.shell(f"cd /root\n{block}") for block in blocks(heading))


def test_commands_of_the_page_work_in_order(
    boot: Boot, dependencies: list[Path], suite: str, tmp_path: Path
) -> None:
    guest = boot(dependencies)
    repository, check = blocks("Install")
    guest.path("/etc/apt/sources.list.d/plog.list").unlink()
    url = "file:/srv/packages/repository-1"
    commands = re.sub(r"curl -o (\S+) URL", r"cp URL_PATH \1 #", repository)
    commands = commands.replace("URL_PATH", f"{url[5:]}/plog-archive-keyring.gpg").replace(
        "URL", url
    )
    guest.shell(commands.replace("apt ", "apt-get -qq -y "))
    assert guest.shell(check).endswith("hello, parcels\nProcessed a total of 1 messages")

    follow(guest, "Change settings")
    follow(guest, "Allow connections from the network")
    assert "0.0.0.0:9092" in guest.run("systemctl", "status", "plog-broker")
    guest.path("/etc/plog/conf.d/network.properties").unlink()

    Authority().server().keystore(guest.path("/root/broker.pem"))
    follow(guest, "Add a TLS listener")
    tls = ("-X", "security.protocol=ssl", "-X", "enable.ssl.certificate.verification=false")
    assert "parcels" in kcat(guest, "-L", *tls, server="127.0.0.1:9093")
    guest.path("/etc/plog/conf.d/tls.properties").unlink()

    follow(guest, "Store data elsewhere")
    produce(guest, "elsewhere", "hello\n")
    assert guest.path("/srv/plog/elsewhere-0").is_dir()
    guest.path("/etc/plog/conf.d/data.properties").unlink()
    guest.run("systemctl", "restart", "plog-broker")

    follow(guest, "Run several brokers on one host")
    assert guest.show("plog-broker@2", "ActiveState") == "active"
    follow(guest, "Restart without refused connections")
    assert consume(guest, "parcels") == "hello, parcels\n"

    before = installed_version(guest)
    use_version(guest, 2, suite)
    [upgrade] = blocks("Upgrade")
    guest.shell(upgrade.replace("apt ", "apt-get -qq -y "))
    assert installed_version(guest) != before
    assert consume(guest, "parcels") == "hello, parcels\n"
    [remove] = blocks("Uninstall")
    guest.shell(remove.replace("apt ", "apt-get -qq -y "))
    assert not answers(guest)


def test_backup_can_be_restored(boot: Boot, installed: list[Path]) -> None:
    guest = boot(installed)
    backup, restore = blocks("Back up and restore")
    produce(guest, "saved", "hello\n")
    guest.shell(backup)
    produce(guest, "saved", "after the backup\n")
    guest.shell(restore)
    eventually(lambda: answers(guest), "answer")
    assert consume(guest, "saved") == "hello\n"
    produce(guest, "saved", "after the restore\n")
    assert consume(guest, "saved") == "hello\nafter the restore\n"


def test_backup_can_be_restored_on_another_host(
    boot: Boot, installed: list[Path], tmp_path: Path
) -> None:
    guest, other = boot(installed), boot(installed)
    backup, restore = blocks("Back up and restore")
    produce(guest, "saved", "hello\n")
    guest.shell(backup)
    for name in ("plog-backup.tar.gz", "plog-settings.tar.gz"):
        other.path(f"/srv/{name}").write_bytes(guest.path(f"/srv/{name}").read_bytes())
    other.shell(restore)
    assert consume(other, "saved") == "hello\n"
