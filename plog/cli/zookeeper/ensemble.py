"""Commands config and reconfig, which show and change the ensemble's servers.

The commands use the port in ports.py and read the file given with `reconfig -file`. Source:
ZooKeeper 3.8 GetConfigCommand, ReconfigCommand, ConfigUtils, QuorumPeerConfig.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plog.cli.options import read_properties
from plog.cli.zookeeper.ports import Command, Console
from plog.cli.zookeeper.text_format import CommandRefused, Given, stat_lines
from plog.error_base import PlogError

_ANY_INTERFACE: Final = "0.0.0.0"
_KEYS: Final = ("server.", "group.", "weight.")
_LONG: Final = range(-(1 << 63), 1 << 63)


def _config(console: Console, given: Given) -> Iterator[str]:
    data, stat = console.client.config(watch="w" in given.options)
    text = _decode(data)
    yield client_string(text) if "c" in given.options else text
    if "s" in given.options:
        yield from stat_lines(stat)


def client_string(config: str) -> str:
    """Return the configuration's version and the addresses that clients connect to.

    >>> client_string("server.1=a:2888:3888:participant;2181\\nversion=10")
    '10 0.0.0.0:2181'
    """
    version = ""
    addresses = []
    for line in config.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            version = value.strip()
        elif name.strip().startswith("server."):
            address = value.partition(";")[2].strip()
            # A port without an address means all interfaces.
            addresses.append(f"{_ANY_INTERFACE}:{address}" if address.isdecimal() else address)
    return f"{version} {','.join(addresses)}"


def _check_members(given: Given) -> None:
    options = given.options
    whole = [each for each in ("file", "members") if each in options]
    parts = [each for each in ("add", "remove") if each in options]
    if not (whole or parts):
        raise CommandRefused(f"reconfig {RECONFIG.usage}")
    # In ZooKeeper's shell, a wrong version is also reported before a wrong combination.
    _version(given)
    if whole and parts:
        raise CommandRefused(
            "Can't use -file or -members together with -add or -remove (mixing incremental"
            " and non-incremental modes is not allowed)"
        )
    if len(whole) > 1:
        raise CommandRefused(
            "Can't use -file and -members together (conflicting non-incremental modes)"
        )


def _reconfig(console: Console, given: Given) -> Iterator[str]:
    # As in ZooKeeper's shell, lists of servers are converted to lower case, but not file names.
    options = {name: value.lower() for name, value in given.options.items()}
    members = options.get("members")
    if "file" in options:
        members = _members_of(given.options["file"])
    data, stat = console.client.reconfigure(
        options.get("add"), options.get("remove"), members, _version(given)
    )
    yield "Committed new configuration:"
    yield _decode(data)
    if "s" in options:
        yield from stat_lines(stat)


def _version(given: Given) -> int:
    """Return the configuration version, in hexadecimal; the default, -1, matches any version."""
    text = given.options.get("v", "-1")
    try:
        # The versions of configurations are zxids, which ZooKeeper prints in hexadecimal.
        version = int(text, 16)
    except ValueError:
        version = _LONG.stop  # An out-of-range value, so that the next check rejects it.
    if version not in _LONG:
        raise CommandRefused("-v must be followed by a long (configuration version)")
    return version


def _members_of(path: str) -> str:
    """Return the servers in a properties file. Raises CommandRefused."""
    try:
        settings = read_properties(path)
    except (OSError, PlogError) as error:
        raise CommandRefused(f"Error processing {path}: {error}") from error
    # Like QuorumPeerConfig, this rejects settings of a server, such as dataDir.
    for name in settings:
        if not name.startswith(_KEYS) and name != "version":
            raise CommandRefused(f"Error processing {path}: Unrecognised parameter: {name}")
    return "\n".join(f"{name}={value}" for name, value in settings.items())


def _decode(data: bytes | None) -> str:
    return (b"null" if data is None else data).decode(errors="replace")


CONFIG: Final = Command("[-c] [-w] [-s]", _config, flags="cws")
RECONFIG: Final = Command(
    "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | "
    "[-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    _reconfig,
    flags="s",
    with_value=("v", "file", "members", "add", "remove"),
    check=_check_members,
)
