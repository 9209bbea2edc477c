"""Kafka's change notifications: sequential znodes that name what brokers must read again.

A broker that changes settings or ACLs creates a znode in a folder; every broker watches the folder,
and reads what the new znodes name. Each broker deletes notifications after 15 minutes. Source:
Kafka 3.9 ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from plog.zookeeper.operations import Delete, MultiFailed, NoNode, name_of
from plogd.metadata.zookeeper.acl_znodes import changed_acl_path
from plogd.metadata.zookeeper.broker_znodes import changed_config_path
from plogd.metadata.zookeeper.paths import (
    ACL_CHANGE_PREFIX,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    EXTENDED_ACL_CHANGES,
    LITERAL_ACL_CHANGES,
)
from plogd.metadata.zookeeper.reading import names_in
from plogd.metadata.zookeeper.session import Session
from plogd.ports import Clock, Later, Report, gather

EXPIRATION_MS: Final = 15 * 60 * 1000
"""Age at which a notification is deleted (Kafka's changeExpirationMs)."""
_GROUP: Final = 256
"""Number of notifications whose age is requested at a time."""


class ChangeNotifications:
    """The notifications in one folder that this broker has not processed.

    Args:
        path_of: returns the path of the znode that changed, from the data of a notification;
            raises ValueError.
        changed: reads these znodes again.
    """

    def __init__(
        self,
        folder: str,
        prefix: str,
        *,
        session: Session,
        clock: Clock,
        path_of: Callable[[bytes], str],
        changed: Callable[[list[str]], Later[None]],
        report: Report,
    ) -> None:
        self.folder = folder
        self._prefix = prefix
        self._session = session
        self._clock = clock
        self._path_of = path_of
        self._changed = changed
        self._report = report
        self._last = -1
        """Number of the last notification that was processed."""
        self._own: set[int] = set()
        """Notifications of this broker, whose changes the mirror contains."""
        self._created_ms: dict[str, int] = {}

    def add_own(self, path: str) -> None:
        """Ignore a notification that this broker has created."""
        self._own.add(self._number(name_of(path)))

    async def start(self) -> None:
        """Ignore the present notifications: everything will be read after this call."""
        names = await names_in(self._session, self.folder)
        self._last = max((self._number(name) for name in names), default=self._last)

    async def follow(self) -> None:
        """Process notifications until the connection is lost; raises the error of that."""
        connection = self._session.connections
        while True:
            fired: Later[None] = Later()
            await self._process(partial(fired.succeed, None))
            await self._session.until_disconnected(fired, connection)

    async def _process(self, watch: Callable[[], None]) -> None:
        names = await names_in(self._session, self.folder, watch)
        # The prefix is the same, and the numbers have leading zeros.
        new = [name for name in names if self._number(name) > self._last]
        paths: dict[str, None] = {}
        for name in new:
            self._last = max(self._last, self._number(name))
            path = await self._changed_path(name)
            if path is not None:
                paths[path] = None
        if paths:
            await self._changed(list(paths))
        await self._purge(names)

    def _number(self, name: str) -> int:
        text = name.removeprefix(self._prefix)
        # Another program may have created a znode in the folder.
        return int(text) if text.isascii() and text.isdecimal() else -1

    async def _changed_path(self, name: str) -> str | None:
        path = f"{self.folder}/{name}"
        try:
            data, stat = await self._session.get(path)
        except NoNode:
            # Deleted after 15 minutes, in which this broker was not connected; then its session
            # has expired, and it reads everything again.
            return None
        self._created_ms[name] = stat.ctime_ms
        number = self._number(name)
        if number in self._own:
            self._own.discard(number)
            return None
        try:
            return self._path_of(data)
        except ValueError as error:
            self._report(
                "cannot decode the notification {path}: {error}; restart the broker if its"
                " settings or ACLs are outdated",
                path=path,
                error=error,
                level="error",
            )
            return None

    async def _purge(self, names: list[str]) -> None:
        now_ms = self._clock.now_ms()
        self._created_ms = {x: ms for x, ms in self._created_ms.items() if x in names}
        unknown = [x for x in names if x not in self._created_ms and self._number(x) >= 0]
        for start in range(0, len(unknown), _GROUP):
            group = unknown[start : start + _GROUP]
            stats = await gather([self._session.exists(f"{self.folder}/{x}") for x in group])
            for name, stat in zip(group, stats, strict=True):
                self._created_ms[name] = now_ms if stat is None else stat.ctime_ms
        for name in names:
            path = f"{self.folder}/{name}"
            if now_ms - self._created_ms.get(name, now_ms) > EXPIRATION_MS:
                try:
                    await self._session.multi([Delete(path=path)])
                except MultiFailed:
                    pass  # Another broker has deleted it.


def notification_folders(
    session: Session,
    clock: Clock,
    *,
    changed: Callable[[list[str]], Later[None]],
    report: Report,
) -> list[ChangeNotifications]:
    """Return the notifications of all folders: those of settings, and two of ACLs."""
    folders: list[tuple[str, str, Callable[[bytes], str]]] = [
        (CONFIG_CHANGES, CONFIG_CHANGE_PREFIX, changed_config_path),
        *(
            (
                folder,
                ACL_CHANGE_PREFIX,
                partial(changed_acl_path, is_literal=folder == LITERAL_ACL_CHANGES),
            )
            for folder in (LITERAL_ACL_CHANGES, EXTENDED_ACL_CHANGES)
        ),
    ]
    return [
        ChangeNotifications(
            folder,
            prefix,
            session=session,
            clock=clock,
            path_of=path_of,
            changed=changed,
            report=report,
        )
        for folder, prefix, path_of in folders
    ]
