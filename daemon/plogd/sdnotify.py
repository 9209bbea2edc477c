"""Notify systemd of the broker's state: ready, reloading, stopping, alive.

The messages are those of sd_notify(3), sent to the datagram socket that systemd names in
``NOTIFY_SOCKET``. Without that variable nothing is sent. service.py is the caller. A message that
cannot be sent is logged, and the broker continues.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from twisted.logger import Logger

log = Logger()

Send = Callable[[str, bytes], None]


def send_datagram(address: str, message: bytes) -> None:
    """Send one datagram to a Unix socket without waiting. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(message, address)


class ServiceNotifier:
    """A connection to the service manager that started this process, if there is one."""

    def __init__(self, environment: Mapping[str, str], send: Send = send_datagram) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading "@" stands for the zero byte of Linux's abstract socket names.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._send = send
        self._watchdog_usec = environment.get("WATCHDOG_USEC", "")

    @property
    def watchdog_interval_ms(self) -> float | None:
        """The interval at which to call `alive`: half the watchdog timeout; None without one."""
        if not self._address or not self._watchdog_usec.isdigit():
            return None
        return int(self._watchdog_usec) / 1000 / 2 or None

    def ready(self, status: str) -> None:
        """Report that the broker serves requests, or that a reload has finished."""
        self._notify(f"READY=1\nSTATUS={_one_line(status)}")

    def reloading(self, monotonic_ms: float) -> None:
        """Report that a reload has started; `ready` reports its end."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic_ms * 1000)}")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._notify(f"STATUS={_one_line(text)}")

    def stopping(self) -> None:
        """Report that the broker is stopping."""
        self._notify("STOPPING=1\nSTATUS=stopping")

    def extend_timeout(self, milliseconds: int) -> None:
        """Extend the timeout for starting or stopping to `milliseconds` from now."""
        self._notify(f"EXTEND_TIMEOUT_USEC={milliseconds * 1000}")

    def alive(self) -> None:
        """Report that the reactor is running, for systemd's watchdog."""
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
