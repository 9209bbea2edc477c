"""What an administrator of a guest does: settings, drop-ins, packages, a look at the journal."""

from __future__ import annotations

from tests.deb.guest import Guest


def add_settings(guest: Guest, *lines: str, name: str = "test") -> None:
    """Write a file of settings to /etc/plog/conf.d."""
    guest.path(f"/etc/plog/conf.d/{name}.properties").write_text("\n".join([*lines, ""]))


def add_drop_in(guest: Guest, *lines: str, unit: str = "plog-broker.service") -> None:
    """Add lines to [Service] of a unit as `systemctl edit` does."""
    folder = guest.path(f"/etc/systemd/system/{unit}.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "override.conf").write_text("\n".join(["[Service]", *lines, ""]))
    guest.run("systemctl", "daemon-reload")


def use_version(guest: Guest, version: int, suite: str) -> None:
    """Let apt install a version of plog: 1 or 2."""
    repository = f"/srv/packages/repository-{version}"
    guest.path("/etc/apt/sources.list.d/plog.list").write_text(
        f"deb [signed-by={repository}/plog-archive-keyring.gpg] file:{repository} {suite} main\n"
    )
    guest.run("apt-get", "-qq", "update")


def starts(guest: Guest, unit: str) -> int:
    """Return how often a unit has started since the boot."""
    return len([line for line in guest.messages(unit) if "starting plog " in line])


def restore(guest: Guest) -> None:
    """Return to the settings of the packages and to an empty broker, and remove all instances."""
    guest.shell(
        """
        systemctl stop 'plog-broker*.service'
        rm -rf /etc/systemd/system/*/plog-broker@* /etc/systemd/system/plog-broker*.d
        rm -rf /etc/plog/broker* /etc/plog/conf.d/* /var/lib/plog/* /srv/data
        systemctl daemon-reload
        systemctl reset-failed
        systemctl start plog-broker
        """
    )
