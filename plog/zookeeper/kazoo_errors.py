"""The error codes that kazoo does not know, and kazoo's exceptions as plog's errors.

Without these codes, kazoo closes the connection when it receives one. Importing this module adds
them. Source: ZooKeeper 3.8 KeeperException.Code.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kazoo.exceptions import (
    EXCEPTIONS,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)

from plog.zookeeper.operations import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    ZooKeeperError,
)

CODES: Final = {
    -120: "Ephemeral node on local session",
    -121: "No such watcher",
    -122: "Request timeout",
    -123: "Reconfig is disabled",
    -124: "Session closed because client failed to authenticate",
    -125: "Quota has exceeded",
    -127: "Op throttled due to high load",
}
QUOTA_EXCEEDED: Final = -125
NO_WATCHER: Final = -121
_REQUEST_TIMEOUT: Final = -122
_ERRORS: Final[dict[type[Exception], type[ZooKeeperError]]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    ConnectionLoss: ConnectionLost,
    # kazoo reports it while it reconnects, too; the request may still be sent.
    ConnectionClosedError: ConnectionLost,
    SessionExpiredError: SessionExpired,
    # The session is on another server now, and this server has not applied the request.
    SessionMovedError: ConnectionLost,
}


class CodeError(ZookeeperError):  # type: ignore[misc]
    """An error response with a code from `CODES`."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


# A later version of kazoo may define some of the codes itself.
for _code in CODES:
    EXCEPTIONS.setdefault(_code, partial(CodeError, _code))


def error_of(error: Exception) -> ZooKeeperError:
    """Return plog's error for an exception of kazoo."""
    known = _ERRORS.get(type(error))
    if known is not None:
        return known(str(error) or known.__doc__ or "")
    code = getattr(error, "code", None)
    # The leader has not answered the server in time, so the request may have been applied.
    if code == _REQUEST_TIMEOUT:
        return ConnectionLost(CODES[code])
    name = CODES.get(code or 0, type(error).__name__.removesuffix("Error"))
    return ZooKeeperError(f"ZooKeeper rejected the request: {name} {error}".rstrip())
