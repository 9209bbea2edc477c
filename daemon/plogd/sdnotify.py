"""Telling systemd how the broker is: ready, reloading, stopping, alive.

The messages of sd_notify(3), sent to the datagram socket that systemd names in ``NOTIFY_SOCKET``.
Without one (started by hand, or by something else) nothing is sent. service.py is the caller. A
message that cannot be sent is logged and otherwise harmless: the broker serves on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from twisted.logger import Logger

log = Logger()

Send = Callable[[str, bytes], None]


def send_datagram(address: str, message: bytes) -> None:
    """Send one datagram to a Unix socket; never waits. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(message, address)


class ServiceNotifier:
    """The way to the service manager, from the environment it started us with."""

    def __init__(self, environment: Mapping[str, str], send: Send = send_datagram) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading "@" stands for the zero byte of Linux' abstract socket names.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._send = send
        self._watchdog_usec = environment.get("WATCHDOG_USEC", "")

    @property
    def watchdog_interval_ms(self) -> float | None:
        """How often to call `alive`: half of what systemd allows; None if it does not watch."""
        if not self._address or not self._watchdog_usec.isdigit():
            return None
        return int(self._watchdog_usec) / 1000 / 2 or None

    def ready(self, status: str) -> None:
        """The broker serves; after a reload, too."""
        self._notify(f"READY=1\nSTATUS={_one_line(status)}")

    def reloading(self, monotonic_ms: float) -> None:
        """A reload has begun; `ready` ends it."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic_ms * 1000)}")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        self._notify(f"STATUS={_one_line(text)}")

    def stopping(self) -> None:
        """The broker has begun to stop."""
        self._notify("STOPPING=1\nSTATUS=stopping")

    def extend_timeout(self, milliseconds: int) -> None:
        """Starting or stopping goes on and takes at most this much longer."""
        self._notify(f"EXTEND_TIMEOUT_USEC={milliseconds * 1000}")

    def alive(self) -> None:
        """The reactor still turns."""
        self._notify("WATCHDOG=1")

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        try:
            self._send(self._address, message.encode())
        except OSError as error:
            log.warn("cannot notify the service manager: {error}", error=error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
