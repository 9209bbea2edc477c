"""Machines on one network, as network namespaces: each has an address, and connections can be cut.

All interfaces are connected by a bridge, which is in a namespace of its own, so that the firewall
of this machine does not apply. This process is a machine, too, named `CLIENT`. The addresses of
neighbors are static. A connection is cut by a wrong hardware address: packets of one direction
then reach no machine, and no program is notified. Source: ip-netns(8), ip-neighbour(8).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import pytest

CLIENT: Final = "client"
_NOWHERE: Final = "02:00:00:00:ff:ff"


class Machines:
    """The machines with these names; ``with`` creates and removes them.

    Without the permission to create them, the test is skipped.
    """

    def __init__(self, names: Sequence[str]) -> None:
        number = os.getpid()
        self._prefix = f"plog{number}"
        self._network = f"10.199.{number % 250}"
        self._hosts = {name: index for index, name in enumerate((*names, CLIENT), 1)}
        self._cuts: set[tuple[str, str]] = set()

    def address(self, name: str) -> str:
        """Return the IPv4 address of a machine."""
        return f"{self._network}.{self._hosts[name]}"

    def command(self, name: str, *command: str) -> list[str]:
        """Return a command line that runs a command on a machine; it keeps the process id."""
        return ["ip", "netns", "exec", self._namespace(name), *command]

    # -- faults -------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Drop all packets from `source` to `target`."""
        self._cuts.add((source, target))
        self._neighbor(source, target, _NOWHERE)

    def heal(self, source: str, target: str) -> None:
        """Deliver packets from `source` to `target` again."""
        self._cuts.discard((source, target))
        self._neighbor(source, target, self._hardware_address(target))

    def heal_all(self) -> None:
        """Deliver all packets."""
        for source, target in list(self._cuts):
            self.heal(source, target)

    # -- setup --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if os.geteuid() or shutil.which("ip") is None:
            pytest.skip("NOT RUN: network namespaces require root and the program ip")
        try:
            self._ip("netns", "add", self._switch)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"NOT RUN: cannot create a network namespace: {error.stderr.strip()}")
        try:
            self._ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            self._ip("-n", self._switch, "link", "set", "br0", "up")
            for name in self._hosts:
                self._create(name)
            for source in self._hosts:
                for target in self._hosts:
                    if source != target:
                        self.heal(source, target)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def _create(self, name: str) -> None:
        port = f"port{self._hosts[name]}"
        interface = self._interface(name)
        if name != CLIENT:
            self._ip("netns", "add", self._namespace(name))
            self._ip(*self._inside(name), "link", "set", "lo", "up")
        peer = ("type", "veth", "peer", "name", port, "netns", self._switch)
        self._ip(*self._inside(name), "link", "add", interface, *peer)
        hardware = ("address", self._hardware_address(name), "up")
        self._ip(*self._inside(name), "link", "set", interface, *hardware)
        address = (f"{self.address(name)}/24", "dev", interface)
        self._ip(*self._inside(name), "address", "add", *address)
        self._ip("-n", self._switch, "link", "set", port, "master", "br0", "up")

    def _remove(self) -> None:
        for name in self._hosts:
            if name != CLIENT:
                self._ip("netns", "del", self._namespace(name), check=False)
        # The client's interface ends with its peer.
        self._ip("netns", "del", self._switch, check=False)

    def _neighbor(self, source: str, target: str, hardware_address: str) -> None:
        where = ("dev", self._interface(source), "nud", "permanent")
        words = ("neigh", "replace", self.address(target), "lladdr", hardware_address, *where)
        self._ip(*self._inside(source), *words)

    @property
    def _switch(self) -> str:
        return f"{self._prefix}-switch"

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _interface(self, name: str) -> str:
        # Its name is visible on this machine, so it must be unique.
        return self._prefix if name == CLIENT else "eth0"

    def _inside(self, name: str) -> tuple[str, ...]:
        return () if name == CLIENT else ("-n", self._namespace(name))

    def _hardware_address(self, name: str) -> str:
        return f"02:00:00:00:00:{self._hosts[name]:02x}"

    def _ip(self, *words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check, capture_output=True, text=True)
