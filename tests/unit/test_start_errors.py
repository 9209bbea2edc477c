"""The remedies for a start that fails: addresses and log directories."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from twisted.internet.error import CannotListenError

from plogd import start_errors
from plogd.start_errors import (
    LogDirRemedies,
    file_system_is_read_only,
    listen_problem,
    unit_name,
)

UNIT = {"INVOCATION_ID": "0123"}


def _error(number: int, path: object = None) -> OSError:
    return OSError(number, os.strerror(number), None if path is None else str(path))


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (
            _error(errno.EADDRINUSE),
            "address already in use by another process; stop it (ss -ltnp shows it) or change "
            "listeners",
        ),
        (
            _error(errno.EADDRNOTAVAIL),
            "no network interface on this host has this address; change listeners",
        ),
        (_error(errno.EACCES), "not permitted; use a port of 1024 or higher in listeners"),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "cannot resolve the name: Name or service not known; change listeners",
        ),
        (_error(errno.ENOBUFS), "No buffer space available; change listeners"),
    ],
)
def test_address_that_cannot_be_opened_is_explained(cause: OSError, text: str) -> None:
    error = CannotListenError("127.0.0.1", 9092, cause)
    assert listen_problem(error, "listeners") == f"cannot listen on 127.0.0.1:9092: {text}"


def test_remedy_for_a_read_only_directory_of_a_unit_is_a_drop_in(tmp_path: Path) -> None:
    remedies = LogDirRemedies(UNIT)
    unit = unit_name(Path("/proc/self/cgroup").read_text())
    path = tmp_path / "new"
    user = start_errors._user_name(os.geteuid())
    assert remedies.remedy(str(path), _error(errno.EROFS, path)) == (
        f"the unit's sandbox does not let the broker write there: create {path} for user {user}, "
        f"run systemctl edit {unit}, add the lines [Service] and ReadWritePaths={path}, and "
        "restart the broker"
    )
    assert "create" not in remedies.remedy(str(tmp_path), _error(errno.EROFS, tmp_path))


def test_remedy_for_a_read_only_file_system_is_a_remount(monkeypatch: pytest.MonkeyPatch) -> None:
    remedy = LogDirRemedies({}).remedy("/srv/plog", _error(errno.EROFS, "/srv/plog"))
    assert remedy.startswith("its file system is read-only: ")
    mounts = "21 1 8:1 / / rw - ext4 /dev/sda1 ro,errors=remount-ro\n"
    monkeypatch.setattr(start_errors, "_read", lambda path: mounts)
    assert LogDirRemedies(UNIT).remedy("/srv/plog", _error(errno.EROFS, "/srv/plog")) == remedy


def test_file_system_of_the_nearest_mount_point_counts() -> None:
    mounts = (
        "21 1 8:1 / / rw - ext4 /dev/sda1 ro\n"
        "22 21 8:2 / /srv rw shared:1 - ext4 /dev/sdb1 rw\n"
        "23 21 8:3 / /srvx rw - ext4 /dev/sdc1 ro\n"
    )
    cases = {"/srv": False, "/srv/plog": False, "/srvx/plog": True, "/srvy": True, "/": True}
    assert {path: file_system_is_read_only(mounts, path) for path in cases} == cases


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_remedy_for_a_directory_of_another_user_is_chown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    owner, user = start_errors._user_name(os.stat(tmp_path).st_uid), "65533"
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    remedies = LogDirRemedies({})
    lock = tmp_path / ".lock"
    assert remedies.remedy(str(tmp_path), _error(number, lock)) == (
        f"{tmp_path} belongs to user {owner} and the broker runs as user {user}: "
        f"run chown -R {user}: {tmp_path}"
    )
    lock.touch()
    assert remedies.remedy(str(tmp_path), _error(number, lock)).startswith(f"{lock} belongs to")
    missing = tmp_path / "data"
    assert remedies.remedy(str(missing), _error(number, missing)).endswith(
        f"create {missing}, then run chown {user}: {missing}"
    )


def test_remedy_for_a_directory_of_the_same_user_is_chmod(tmp_path: Path) -> None:
    remedy = LogDirRemedies({}).remedy(str(tmp_path), _error(errno.EACCES, tmp_path))
    assert remedy.endswith(f"access: run chmod -R u+rwX {tmp_path}")


def test_other_errors_of_a_directory_have_no_remedy() -> None:
    assert LogDirRemedies(UNIT).remedy("/a", _error(errno.EIO)) == ""


def test_unit_is_named_by_its_control_group() -> None:
    hybrid = "12:pids:/\n1:name=systemd:/system.slice/plog-broker.service\n0::/system.slice\n"
    assert unit_name(hybrid) == "plog-broker"
    assert unit_name("0::/\n") == "plog-broker"
