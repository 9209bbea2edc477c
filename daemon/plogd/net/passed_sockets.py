"""Listening sockets that systemd has opened and passed to the broker.

`take_passed_descriptors` reads the protocol of sd_listen_fds(3): the descriptors from 3 on, each
with the ``FileDescriptorName=`` of its socket unit. `match_sockets` assigns each descriptor to the
listener of that name. listeners.py accepts connections on the sockets; until then, process.py keeps
the descriptors. Clients that connect while no broker is running wait in the kernel's queue.

Called on the reactor's thread during startup. Invariant: a descriptor that no listener uses is
closed, and no child process inherits a descriptor.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from plog.errors import PlogError
from plogd.config.listener import Listener

log = Logger()

_FIRST_DESCRIPTOR = 3
"""SD_LISTEN_FDS_START in sd_listen_fds(3)."""
_DESCRIPTORS_MAX = 1000
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_ANY_IPV4, _ANY_IPV6 = "0.0.0.0", "::"


class SocketUnusable(PlogError):
    """Raised if a listener cannot use the socket with its name."""


class PassedDescriptor(NamedTuple):
    """An inherited descriptor and its name, which should be the name of a listener."""

    name: str
    descriptor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedSocket:
    """A non-blocking listening socket, and the listener that uses it."""

    listener: Listener
    sock: socket.socket
    host: str
    port: int
    is_dual_stack: bool
    """Whether an IPv6 socket also accepts IPv4 clients."""

    @property
    def address(self) -> str:
        """The socket's address, as host and port."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def bound_listener(self) -> Listener:
        """Return the listener with the socket's own host, which is empty for all addresses."""
        return replace(self.listener, host="" if self.is_dual_stack else self.host)


def take_passed_descriptors(
    environment: MutableMapping[str, str], process_id: int
) -> list[PassedDescriptor]:
    """Return the descriptors that systemd passed to the process `process_id`.

    Removes the variables from `environment`, as sd_listen_fds(3) does on request, so that child
    processes do not use them.
    """
    pid, count, names = (environment.pop(name, "") for name in _VARIABLES)
    if not (count.isdecimal() and 0 < int(count) <= _DESCRIPTORS_MAX):
        return []
    # A process started by a script inherits the variables, but they apply to the script.
    if pid != str(process_id):
        log.warn(
            "ignored {count} sockets from systemd: they are for process {pid}, but this is"
            " process {process_id}; a script must start the broker with exec",
            count=int(count),
            pid=pid,
            process_id=process_id,
        )
        return []
    # systemd has set the names since version 227; a descriptor without a name is "unknown".
    known = names.split(":") if names else []
    found = []
    for index in range(int(count)):
        descriptor = _FIRST_DESCRIPTOR + index
        try:
            # systemd passes descriptors without FD_CLOEXEC: a child process would keep the port
            # open.
            os.set_inheritable(descriptor, False)
        except OSError as error:
            log.warn(
                "ignored descriptor {descriptor} from systemd: {error}",
                descriptor=descriptor,
                error=error.strerror,
            )
            continue
        found.append(
            PassedDescriptor(known[index] if index < len(known) else "unknown", descriptor)
        )
    return found


def restore_variables(environment: MutableMapping[str, str], initial: bytes) -> None:
    """Restore the variables that Twisted has removed from `environment`.

    Twisted's string endpoints remove these variables when they are imported, and twistd imports
    them with its plugins. `initial` is the content of ``/proc/self/environ``, which does not
    change.
    """
    for assignment in initial.split(b"\0"):
        name, _, value = os.fsdecode(assignment).partition("=")
        if name in _VARIABLES:
            # A variable that is still set is newer than /proc/self/environ.
            environment.setdefault(name, value)


def match_sockets(
    descriptors: Sequence[PassedDescriptor], listeners: Sequence[Listener]
) -> list[PassedSocket]:
    """Return a socket for each descriptor that has the name of one of `listeners`.

    Names are compared case-insensitively. Other descriptors are closed, with a warning. Descriptors
    with the same name are different addresses of the same listener.

    Raises:
        SocketUnusable: a descriptor with a listener's name is not a listening TCP socket, or has
            none of the listener's addresses.
        CannotListenError: the host name of a listener that uses a descriptor cannot be resolved.
    """
    matched: list[PassedSocket] = []
    for name, descriptor in descriptors:
        # Listener names are in upper case, as in Kafka (ListenerName.normalised).
        same_name = [listener for listener in listeners if listener.name == name.upper()]
        if same_name:
            matched.append(_match(_open_socket(name, descriptor), same_name))
            continue
        # Otherwise, clients that connect to this socket would wait in its queue forever.
        os.close(descriptor)
        log.warn(
            "closed the socket {socket} from systemd: no listener has this name; set"
            " FileDescriptorName= to one of {names}",
            socket=name,
            names=", ".join(dict.fromkeys(listener.name for listener in listeners)),
        )
    for listener in listeners:
        _warn_of_missing_addresses(listener, matched)
    return matched


def listening_addresses(listener: Listener) -> list[str]:
    """Return the addresses to listen on, in order; "::" and "0.0.0.0" for an empty host.

    Raises CannotListenError.
    """
    if not listener.host:
        return [_ANY_IPV6, _ANY_IPV4]  # The second is used if the system does not support IPv6.
    host, port = listener.host, listener.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotListenError(host, port, error) from error
    # IPv4 first: with port 0, the first address determines the port.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _open_socket(name: str, descriptor: int) -> socket.socket:
    """Return the listening TCP socket of a descriptor."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:  # ENOTSOCK: a FIFO or a file.
        raise _not_tcp(name) from None
    is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
    if not is_tcp:
        raise _not_tcp(name)
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise SocketUnusable(
            f"cannot use the socket {name} from systemd: it is a connection, not a listening"
            " socket; remove Accept=yes"
        )
    # systemd passes a blocking socket: accept() would stop the reactor when no client is waiting.
    sock.setblocking(False)
    return sock


def _not_tcp(name: str) -> SocketUnusable:
    return SocketUnusable(
        f"cannot use the socket {name} from systemd: it is not a TCP socket; set ListenStream= to"
        " an IP address and a port"
    )


def _match(sock: socket.socket, listeners: Sequence[Listener]) -> PassedSocket:
    """Return `sock` with the listener that has its address; all `listeners` have the same name."""
    host, port = sock.getsockname()[:2]
    is_ipv6 = sock.family == socket.AF_INET6
    v6_only = is_ipv6 and sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    passed = PassedSocket(
        listener=listeners[0],
        sock=sock,
        host=host,
        port=port,
        is_dual_stack=host == _ANY_IPV6 and not v6_only,
    )
    for listener in listeners:
        if _has_address(listener, passed):
            return replace(passed, listener=listener)
    raise SocketUnusable(
        f"cannot use the socket {listeners[0].name} from systemd: it listens on {passed.address},"
        f" but listeners contains {', '.join(map(str, listeners))}; change ListenStream= or"
        " listeners"
    )


def _has_address(listener: Listener, passed: PassedSocket) -> bool:
    """Return whether a socket accepts only clients that its listener would accept."""
    if listener.port not in (0, passed.port):
        return False
    wanted = listening_addresses(listener)
    if any(_covers(passed, address) for address in wanted):
        return True
    # A listener on all addresses may use a socket on one of them, such as a network interface's.
    is_specific = passed.host not in (_ANY_IPV4, _ANY_IPV6)
    return is_specific and (_ANY_IPV6 if ":" in passed.host else _ANY_IPV4) in wanted


def _covers(passed: PassedSocket, address: str) -> bool:
    """Return whether a socket listens on `address`; a dual-stack socket also covers all of IPv4."""
    if passed.is_dual_stack and address == _ANY_IPV4:
        return True
    return _without_zone(passed.host) == _without_zone(address)


def _without_zone(host: str) -> object:
    return ipaddress.ip_address(host.partition("%")[0])


def _warn_of_missing_addresses(listener: Listener, matched: Sequence[PassedSocket]) -> None:
    sockets = [each for each in matched if each.listener.name == listener.name]
    # systemd, like the broker, uses 0.0.0.0 for all addresses if the system has no IPv6.
    wanted = listening_addresses(listener) if listener.host else [_ANY_IPV4]
    missing = [address for address in wanted if not any(_covers(s, address) for s in sockets)]
    if sockets and missing:
        log.warn(
            "listener {listener} accepts clients only on {addresses}, the sockets from systemd; for"
            " its other addresses, add ListenStream= lines",
            listener=str(listener),
            addresses=", ".join(each.address for each in sockets),
        )
