"""Look up a broker's addresses with the system's resolver.

A client cannot set the resolver's timeout, and the resolver may take minutes if no name server
responds. Therefore, the lookup always runs in a thread that the caller can abandon:
twisted_network.py has its own threads, and socket_connection.py calls `look_up_within`.
"""

from __future__ import annotations

import socket
from queue import Empty, SimpleQueue
from threading import Thread

from plog.client.errors import ConnectionFailed


def is_address(host: str) -> bool:
    """Return whether `host` is an IP address, which does not need a resolver."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


def look_up(host: str, port: int) -> list[str]:
    """Return all addresses of `host`, in the order in which the system would try them.

    The call takes as long as the resolver does. Raises ConnectionFailed.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionFailed(f"cannot resolve {host}:{port}: {error.strerror}") from error
    except UnicodeError as error:
        # A label in the host name is empty or too long for IDNA.
        raise ConnectionFailed(f"{host!r} is not a host name") from error
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def look_up_within(host: str, port: int, timeout_s: float) -> list[str]:
    """Look up addresses in a thread, and block. Raises ConnectionFailed after `timeout_s`."""
    if is_address(host):
        return [host]
    outcomes: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcomes.put(look_up(host, port))
        except Exception as error:
            outcomes.put(error)

    # A resolver that hangs must not delay the exit of the process, hence a daemon thread.
    Thread(target=run, name="plog-resolver", daemon=True).start()
    try:
        outcome = outcomes.get(timeout=max(0.0, timeout_s))
    except Empty:
        raise ConnectionFailed(late_look_up(host, port)) from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def late_look_up(host: str, port: int) -> str:
    """Return the error message for a resolver that takes too long."""
    return f"cannot resolve {host}:{port}: the resolver took too long"
