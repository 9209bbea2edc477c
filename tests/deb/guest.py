"""A Debian host that runs systemd as process 1, in a container on a throw-away copy of a tree.

systemd-nspawn boots it with a network of its own, so its ports are not those of this host. Programs
of this host, such as kcat, reach it from inside its network namespace. Its files are an overlay in
memory: they survive a reboot of the guest, and they can become a layer below other guests.

Needs root and private namespaces, which packaging/test-deb provides. By default nspawn puts all
guests into the caller's cgroup, where stopping a unit of one guest stops that of another, so each
guest gets its own cgroup.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.helpers.eventually import eventually

COMMAND_TIMEOUT_S = 300.0
_CLEAN_ENVIRONMENT = (
    "env",
    "-i",
    "--chdir=/",
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
    "TERM=dumb",
)
_HYBRID_CGROUPS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")


class Guest:
    """A host.

    Args:
        layers: its trees, the uppermost first.
        folder: an empty folder for its own files.
        mounts: folders of this host that it can read, by their path in the guest.
        disk: the size of its disk, as mount(8) expects it.
    """

    def __init__(
        self,
        name: str,
        layers: Sequence[Path],
        folder: Path,
        mounts: Mapping[str, Path],
        *,
        disk: str = "4g",
    ) -> None:
        self.name = name
        self._disk = disk
        self.upper = folder / "upper"
        self.root = folder / "root"
        self._folder = folder
        self._layers = layers
        self._mounts = mounts
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0

    # -- power --------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start the guest and wait until systemd has started everything."""
        if not self.root.exists():
            self._mount()
        os.sync()
        options = [
            *("-D", str(self.root), "-M", self.name, "--register=no", "--keep-unit", "--boot"),
            *("--private-network", "--resolv-conf=off", "--timezone=off", "--quiet"),
            *(f"--bind-ro={path}:{where}" for where, path in self._mounts.items()),
        ]
        join = 'for group in $GROUPS_OF_GUEST; do echo 0 >"$group/cgroup.procs"; done; exec "$@"'
        with (self._folder / "console.log").open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["sh", "-euc", join, "sh", "systemd-nspawn", *options],
                env={**os.environ, "GROUPS_OF_GUEST": " ".join(self._cgroups())},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        eventually(self._find_leader, f"process 1 of {self.name}")
        state = eventually(self._state, f"end of the boot of {self.name}")
        if state != "running":
            failed = self.run("systemctl", "--failed", "--no-legend", "--plain", check=False)
            raise AssertionError(f"{self.name} is {state}: {failed}")

    def power_off(self) -> None:
        """Shut the guest down as an administrator does."""
        self.run("systemctl", "poweroff", "--no-wall", "--no-block", check=False)
        self._wait_until_off()

    def kill(self) -> None:
        """Kill all processes of the guest at once."""
        os.kill(self._leader, signal.SIGKILL)
        self._wait_until_off()

    def destroy(self) -> None:
        """End the guest; remove its mounts and its cgroups, but not the files in `upper`."""
        if self._nspawn is not None:
            if self._leader:
                self.kill()
            else:
                self._nspawn.kill()
                self._wait_until_off()
        subprocess.run(["umount", "--lazy", str(self.root)], check=False)
        eventually(self._remove_cgroups, f"end of the processes of {self.name}")

    # -- commands -----------------------------------------------------------------------------

    def run(
        self,
        *command: str,
        check: bool = True,
        stdin: str = "",
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> str:
        """Run a command as root in the guest; return its standard output and standard error."""
        done = subprocess.run(
            self._inside("--all", *_CLEAN_ENVIRONMENT, *command),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            cwd="/",
        )
        assert not check or done.returncode == 0, (
            f"{command} ended with {done.returncode}:\n{done.stdout}"
        )
        return done.stdout.rstrip("\n")

    def shell(self, script: str, *, check: bool = True, stdin: str = "") -> str:
        """Run a script of sh; return its output. An error in it ends it."""
        return self.run("sh", "-euc", script, check=check, stdin=stdin)

    def succeeds(self, *command: str) -> bool:
        """Return whether a command ends with exit code 0."""
        done = subprocess.run(
            self._inside("--all", *_CLEAN_ENVIRONMENT, *command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            cwd="/",
        )
        return done.returncode == 0

    def in_network(self, *command: str) -> list[str]:
        """Return the command line that runs a program of this host in the guest's network."""
        return self._inside("--net", *command)

    def path(self, path: str) -> Path:
        """Return where this host sees a file of the guest."""
        return self.root / path.lstrip("/")

    def has_package(self, name: str) -> bool:
        """Return whether a package is installed."""
        status = self.run("dpkg-query", "-W", "-f", "${db:Status-Status}", name, check=False)
        return status == "installed"

    # -- systemd ------------------------------------------------------------------------------

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit)

    def journal(self, *matches: str) -> list[Mapping[str, object]]:
        """Return the entries of the journal since the boot that match, oldest first."""
        lines = self.run("journalctl", "--quiet", "--boot", "--output=json", *matches)
        return [json.loads(line) for line in lines.splitlines()]

    def messages(self, unit: str) -> list[str]:
        """Return the messages that a unit has logged since the boot."""
        return [str(entry.get("MESSAGE")) for entry in self.journal("--unit", unit)]

    # -- parts --------------------------------------------------------------------------------

    def _inside(self, *arguments: str) -> list[str]:
        return ["nsenter", f"--target={self._leader}", *arguments]

    def _mount(self) -> None:
        options = f"mode=755,size={self._disk}"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, self.name, str(self._folder)], check=True
        )
        work = self._folder / "work"
        for folder in (self.upper, self.root, work):
            folder.mkdir()
        lower = ":".join(str(layer) for layer in self._layers)
        options = f"lowerdir={lower},upperdir={self.upper},workdir={work}"
        subprocess.run(
            ["mount", "-t", "overlay", "-o", options, self.name, str(self.root)], check=True
        )

    def _cgroups(self, *, make: bool = True) -> list[str]:
        hybrid = [path for path in _HYBRID_CGROUPS if os.path.isdir(path)]
        groups = [f"{path}/plog-{self.name}" for path in hybrid or ["/sys/fs/cgroup"]]
        for group in groups:
            if make:
                os.makedirs(group, exist_ok=True)
        return [group for group in groups if os.path.isdir(group)]

    def _remove_cgroups(self) -> bool:
        """Remove the guest's cgroups; return whether no process was left in them."""
        try:
            for group in self._cgroups(make=False):
                for folder, _, _ in os.walk(group, topdown=False):
                    os.rmdir(folder)
        except OSError as error:
            # The ending guest may remove a cgroup first.
            if error.errno not in (errno.EBUSY, errno.ENOENT):
                raise
            return False
        return True

    def _find_leader(self) -> int:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise AssertionError((self._folder / "console.log").read_text(errors="replace"))
        # nspawn also starts helpers that end soon.
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text()
        systemds = [int(child) for child in children.split() if _is_systemd(child)]
        self._leader = systemds[0] if systemds else 0
        return self._leader

    def _state(self) -> str:
        state = self.run("systemctl", "is-system-running", check=False)
        return state if state in ("running", "degraded", "maintenance") else ""

    def _wait_until_off(self) -> None:
        assert self._nspawn is not None
        self._nspawn.wait(COMMAND_TIMEOUT_S)
        self._nspawn, self._leader = None, 0


def _is_systemd(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "systemd\n"
    except OSError:  # It has ended.
        return False
