"""Describe why the broker cannot start, in one line with the remedy.

The remedy for a log directory depends on how the broker runs: a systemd unit needs a drop-in for
directories outside its sandbox. service.py calls these functions before the broker serves requests.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path

from twisted.internet.error import CannotListenError

_LISTEN_REMEDIES = {
    errno.EADDRINUSE: (
        "address already in use by another process; stop it (ss -ltnp shows it) or change {setting}"
    ),
    errno.EADDRNOTAVAIL: "no network interface on this host has this address; change {setting}",
    errno.EACCES: "not permitted; use a port of 1024 or higher in {setting}",
}


def listen_problem(error: CannotListenError, setting: str) -> str:
    """Describe why an address of `setting` cannot be opened.

    >>> listen_problem(CannotListenError("::1", 80, OSError(errno.EACCES, "")), "listeners")
    'cannot listen on [::1]:80: not permitted; use a port of 1024 or higher in listeners'
    """
    host, cause = error.interface or "*", error.socketError
    address = f"{f'[{host}]' if ':' in host else host}:{error.port}"
    if isinstance(cause, socket.gaierror):
        why = f"cannot resolve the name: {cause.strerror}; change {setting}"
    elif isinstance(cause, OSError) and cause.errno in _LISTEN_REMEDIES:
        why = _LISTEN_REMEDIES[cause.errno].format(setting=setting)
    else:
        why = f"{getattr(cause, 'strerror', None) or cause}; change {setting}"
    return f"cannot listen on {address}: {why}"


class LogDirRemedies:
    """Finds remedies for log directories that the broker cannot use; see `remedy`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # systemd sets the variable for each run of a unit.
        self._unit = unit_name(_read("/proc/self/cgroup")) if "INVOCATION_ID" in environment else ""

    def remedy(self, log_dir: str, error: OSError) -> str:
        """Return the remedy for `error` in `log_dir`; "" if none is known."""
        path = os.path.abspath(log_dir)
        if error.errno == errno.EROFS:
            return self._of_read_only(path)
        if error.errno in (errno.EACCES, errno.EPERM):
            return _of_forbidden(path, str(error.filename or path))
        return ""

    def _of_read_only(self, path: str) -> str:
        # With ProtectSystem=strict, most directories are read-only, but only for the unit. A
        # drop-in helps only in that case.
        if not self._unit or file_system_is_read_only(_read("/proc/self/mountinfo"), path):
            return (
                "its file system is read-only: look for disk errors in the kernel log, remount it"
                " read-write and restart the broker, or change log.dirs"
            )
        user = _user_name(os.geteuid())
        make = "" if os.path.exists(path) else f"create {path} for user {user}, "
        return (
            f"the unit's sandbox does not let the broker write there: {make}run systemctl edit "
            f"{self._unit}, add the lines [Service] and ReadWritePaths={path}, and restart "
            "the broker"
        )


def _of_forbidden(path: str, file: str) -> str:
    # In the arguments of chown, "user:" also sets the group, to the user's login group.
    user = _user_name(os.geteuid())
    existing = _existing(os.path.abspath(file))
    try:
        owner = os.stat(existing).st_uid
    except OSError:
        return f"the broker runs as user {user}: run chown -R {user}: {path}"
    if not os.path.exists(path):
        return (
            f"{existing} belongs to user {_user_name(owner)} and the broker runs as user {user}: "
            f"create {path}, then run chown {user}: {path}"
        )
    if owner == os.geteuid():
        return f"{existing} does not give its owner, {user}, access: run chmod -R u+rwX {path}"
    return (
        f"{existing} belongs to user {_user_name(owner)} and the broker runs as user {user}: "
        f"run chown -R {user}: {path}"
    )


def unit_name(cgroups: str) -> str:
    """Return the name of the service unit in the content of /proc/self/cgroup.

    >>> unit_name("0::/plog.slice/plog-broker@2.service\\n")
    'plog-broker@2'
    """
    for line in cgroups.splitlines():
        name = line.rpartition("/")[2]
        if name.endswith(".service"):
            return name.removesuffix(".service")
    return "plog-broker"  # The packaged unit.


def file_system_is_read_only(mounts: str, path: str) -> bool:
    """Return whether the file system of `path` is read-only, and not only the sandbox's view of it.

    `mounts` is the content of /proc/self/mountinfo.

    >>> sandbox = "21 1 8:1 / / ro,relatime - ext4 /dev/sda1 rw\\n"
    >>> file_system_is_read_only(sandbox, "/srv/plog")
    False
    >>> file_system_is_read_only(sandbox + "22 1 8:2 / /srv ro - ext4 /dev/sdb1 ro\\n", "/srv/plog")
    True
    """
    nearest, options = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        point = fields[4].rstrip("/")
        if len(point) >= len(nearest) and f"{path}/".startswith(f"{point}/"):
            # The last field contains the options of the file system itself; the sixth contains the
            # options of the mount.
            nearest, options = point, fields[-1]
    return "ro" in options.split(",")


def _existing(path: str) -> str:
    """Return `path`, or its nearest parent that exists and is visible."""
    while not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        # A container may run as a user that does not exist in its user database.
        return str(uid)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
