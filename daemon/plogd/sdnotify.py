"""Notify systemd of the broker's state: ready, reloading, stopping, alive.

The messages are defined in sd_notify(3), and are sent to the datagram socket whose address is in
``NOTIFY_SOCKET``. Without that variable, nothing is sent. supervision.py is the main caller.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

from twisted.logger import Logger

log = Logger()

Send = Callable[[str, bytes], None]


def send_datagram(address: str, message: bytes) -> None:
    """Send one datagram to a Unix socket without waiting. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        # If the manager's socket is full, a lost message is better than a blocked reactor.
        sender.setblocking(False)
        sender.sendto(message, address)


class ServiceNotifier:
    """A connection to the service manager that started this process, if one exists."""

    def __init__(
        self,
        environment: Mapping[str, str],
        send: Send = send_datagram,
        get_pid: Callable[[], int] = os.getpid,
    ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading "@" stands for the zero byte of Linux's abstract socket names.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._send = send
        self._get_pid = get_pid
        self._watchdog_usec = environment.get("WATCHDOG_USEC", "")
        self._watchdog_pid = environment.get("WATCHDOG_PID", "")
        self._has_failed = False
        """Whether the last message could not be sent."""

    @property
    def is_connected(self) -> bool:
        """Whether a service manager exists."""
        return bool(self._address)

    @property
    def watchdog_interval_ms(self) -> float | None:
        """The interval at which to call `alive`; None if there is no watchdog."""
        if not self._address or not self._watchdog_usec.isdigit():
            return None
        # The watchdog is meant for another process, such as the parent.
        if self._watchdog_pid and self._watchdog_pid != str(self._get_pid()):
            return None
        # sd_watchdog_enabled(3) recommends half of the timeout.
        return int(self._watchdog_usec) / 1000 / 2 or None

    def ready(self, status: str) -> None:
        """Report that the broker serves requests, or that a reload has finished."""
        self._notify(f"READY=1\nSTATUS={_one_line(status)}")

    def reloading(self, monotonic_ms: float) -> None:
        """Report that a reload has started; `ready` reports its end."""
        # sd_notify(3) requires the time with RELOADING=1.
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic_ms * 1000)}")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._notify(f"STATUS={_one_line(text)}")

    def stopping(self, status: str) -> None:
        """Report that the broker is stopping; "" keeps the status that was sent last."""
        self._notify("STOPPING=1" + (f"\nSTATUS={_one_line(status)}" if status else ""))

    def progress(self, status: str | None, extend_ms: int) -> None:
        """Extend the timeout for startup or shutdown until `extend_ms` from now.

        If `status` is not None, it replaces the line that ``systemctl status`` shows.
        """
        shown = "" if status is None else f"\nSTATUS={_one_line(status)}"
        self._notify(f"EXTEND_TIMEOUT_USEC={extend_ms * 1000}{shown}")

    def alive(self) -> None:
        """Report that the reactor is running, for systemd's watchdog."""
        self._notify("WATCHDOG=1")

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        try:
            self._send(self._address, message.encode())
        except OSError as error:
            # Only the first failure in a row is logged, because a status is sent every few seconds.
            if not self._has_failed:
                log.warn("cannot notify the service manager: {error}", error=error)
            self._has_failed = True
        else:
            self._has_failed = False


def _one_line(text: str) -> str:
    return " ".join(text.split())
