"""Turn changes of keys into operations on znodes.

A `WriteUnit` is what is applied together or not at all: one change of a plain write, or all changes
of an atomic write. `Planner` compares the expected versions with the mirror and returns the
operations; writer.py sends them. Each operation has a role, which decides what its failure means.

A change of settings or ACLs includes Kafka's notification for the other brokers. Kafka creates it
in a second step, and loses it if the broker dies in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from plog.enums import AclPatternType
from plog.errors import KafkaStorageError
from plog.zookeeper.operations import (
    MAX_ZNODE_BYTES,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    name_of,
    parent_of,
)
from plogd.metadata.store import ABSENT, Change, Conflict, Key, Outcome, Written
from plogd.metadata.zookeeper.acl_znodes import encode_acl_change
from plogd.metadata.zookeeper.broker_znodes import encode_config_change
from plogd.metadata.zookeeper.config_znodes import encode_config
from plogd.metadata.zookeeper.mirror import ZnodeMirror
from plogd.metadata.zookeeper.paths import (
    ACL_CHANGE_PREFIX,
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    EXTENDED_ACL_CHANGES,
    LITERAL_ACL_CHANGES,
    TOPIC_CONFIGS,
    USERS,
    path_of,
    pattern_of,
    resource_path,
)
from plogd.metadata.zookeeper.znode_codec import LOG_DIR_FAILURE, encode_znode
from plogd.security.acl import acl_key


class Role(Enum):
    """What an operation is for."""

    ENSURE = "ensure"
    """Create a znode unless it exists."""
    MAIN = "main"
    """Make the change."""
    TIDY = "tidy"
    """Delete a parent that has become empty."""
    NOTIFY = "notify"
    """Notify the other brokers."""


class Fencing(Protocol):
    """What a write asks about the controller's term; the store implements it."""

    def fence(self, term: int) -> Check | None:
        """Return the operation that fails once the term is over; None if it is over."""
        ...

    def fenced(self) -> None:
        """Note that a write of this broker was fenced."""
        ...


@dataclass(slots=True, kw_only=True)
class WriteUnit:
    """Changes that are made together or not at all; `outcomes` or `error` is set at the end."""

    changes: Sequence[Change]
    term: int | None
    outcomes: list[Outcome] | None = None
    error: Exception | None = None
    is_fresh: bool = False
    """Whether its znodes were read after it was submitted, so that a conflict is certain."""
    may_delete: bool = True
    """Whether a znode that becomes empty is deleted; not if it has children."""
    is_tidy: bool = True
    """Whether its parents that become empty are deleted; not after that has failed once."""
    has_lost_parents: bool = False
    """Whether a parent that was known has turned out to be missing."""
    sent: dict[str, tuple[bytes | None, int]] = field(default_factory=dict)
    """The new data and the old version of each znode, as last sent; None to delete it."""

    @property
    def is_done(self) -> bool:
        """Whether the unit has an outcome or an error."""
        return self.outcomes is not None or self.error is not None

    @property
    def removed_topic(self) -> str | None:
        """The topic that the unit removes, in as many steps as it takes; None for other units."""
        for change in self.changes:
            if change.key[0] == "topic" and change.value is None:
                if len(self.changes) > 1:
                    raise ValueError("the removal of a topic must be the only change of a write")
                return str(change.key[1])
        return None


@dataclass(slots=True, kw_only=True)
class Plan:
    """The operations of a unit, with their roles."""

    ensured: set[str]
    operations: list[Operation] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """The size of the data that the operations write."""
        return sum(len(one.data) for one in self.operations if isinstance(one, Create | SetData))

    def add(self, role: Role, operation: Operation) -> None:
        """Append an operation."""
        self.operations.append(operation)
        self.roles.append(role)

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Append the creation of a znode, unless this transaction creates it already."""
        if path not in self.ensured:
            self.ensured.add(path)
            self.add(Role.ENSURE, Create(path=path, data=data))


class Planner:
    """Plans units against a mirror. `known` are parents that need not be created."""

    def __init__(self, mirror: ZnodeMirror) -> None:
        self._mirror = mirror
        self.known: set[str] = set()

    def paths_of(self, unit: WriteUnit) -> list[str]:
        """Return the znodes that the unit changes. Raises ValueError for an invalid change."""
        paths = (self._path_of(change) for change in unit.changes)
        return list(dict.fromkeys(path for path in paths if path is not None))

    def _path_of(self, change: Change) -> str | None:
        if change.key[0] == LOG_DIR_FAILURE:
            return self._mirror.path_holding(change.key)
        if change.key[0] != "acl":
            return path_of(change.key)
        if change.value is None:
            return self._mirror.path_holding(change.key)
        if change.key != acl_key(change.value):
            raise ValueError(f"cannot write {change.key}: the id of a rule must be its acl_key")
        return resource_path(change.value.pattern)

    def has_damage(self, unit: WriteUnit) -> bool:
        """Return whether a znode of the unit could not be decoded when it was last read."""
        damaged = self._mirror.damaged
        return bool(damaged) and any(path in damaged for path in self.paths_of(unit))

    def conflicts(self, unit: WriteUnit) -> list[Outcome] | None:
        """Return the outcomes if a version does not match, otherwise None.

        Raises KafkaStorageError if a znode is damaged.
        """
        for path in self.paths_of(unit):
            self._mirror.check(path)
        found = [self._mirror.get(change.key) for change in unit.changes]
        if all(
            version == change.expected
            for change, (_, version) in zip(unit.changes, found, strict=True)
        ):
            return None
        return [Conflict(value=value, version=version) for value, version in found]

    def written(self, unit: WriteUnit) -> list[Outcome]:
        """Return the outcomes of a unit that was applied, and whose effect is in the mirror."""
        return [Written(version=self._mirror.get(change.key)[1]) for change in unit.changes]

    def plan(self, unit: WriteUnit, ensured: set[str]) -> Plan:
        """Return the operations of a unit without conflicts; none if it changes nothing.

        `ensured` are the znodes that earlier operations of the transaction create, and gets those
        of this unit.
        """
        changes_by_path: dict[str, dict[Key, Any]] = {}
        for change in unit.changes:
            path = self._path_of(change)
            # Removing a missing key changes nothing.
            if path is not None and not (change.value is None and change.expected == ABSENT):
                changes_by_path.setdefault(path, {})[change.key] = change.value
        plan = Plan(ensured=ensured)
        unit.sent = {}
        for path, changes in changes_by_path.items():
            self._plan_znode(plan, unit, path, changes)
        # A server closes the connection when it receives more, so the write would be repeated
        # forever.
        if plan.size_bytes > MAX_ZNODE_BYTES:
            raise KafkaStorageError(
                f"cannot write {', '.join(changes_by_path)}: {plan.size_bytes} bytes are more than"
                f" the {MAX_ZNODE_BYTES} that ZooKeeper accepts"
            )
        return plan

    def _plan_znode(
        self, plan: Plan, unit: WriteUnit, path: str, changes: Mapping[Key, Any]
    ) -> None:
        znode = self._mirror.znode(path)
        old = None if znode is None else znode.data
        new = encode_znode(path, changes, old, term=unit.term)
        if new is None and path.startswith(CONFIG) and not self._may_delete(unit, path):
            new = encode_config({}, old)
        version = ABSENT if znode is None else znode.version
        if znode is None and path in plan.ensured:
            version = 0
        if new is None:
            if znode is None:
                return
            plan.add(Role.MAIN, Delete(path=path, version=version))
            self._tidy(plan, unit, path)
        elif version == ABSENT:
            self._ensure_parents(plan, path)
            plan.add(Role.MAIN, Create(path=path, data=new))
        else:
            plan.add(Role.MAIN, SetData(path=path, data=new, version=version))
        unit.sent[path] = (new, version)
        self._complete(plan, path, znode is None, changes)

    def _may_delete(self, unit: WriteUnit, path: str) -> bool:
        # The znode of a user with quotas for client ids has children.
        return unit.may_delete and not self._mirror.paths_below(path)

    def _ensure_parents(self, plan: Plan, path: str) -> None:
        for parent in self._parents(path):
            if parent not in self.known and self._mirror.znode(parent) is None:
                plan.ensure(parent)

    def _parents(self, path: str) -> Iterator[str]:
        """Yield the parents that a broker does not create when it starts, outermost first."""
        parts = path.split("/")
        match parts[1:]:
            case ["brokers", "topics", _, "partitions", _, "state"]:
                yield parent_of(parent_of(path))
                yield parent_of(path)
            case ["config", "users", _, "clients", _]:
                yield parent_of(parent_of(path))
                yield parent_of(path)

    def _tidy(self, plan: Plan, unit: WriteUnit, path: str) -> None:
        """Delete the parents of a client id's znode that are no longer needed, as Kafka does."""
        clients = parent_of(path)
        if name_of(clients) != "clients" or not clients.startswith(USERS + "/"):
            return
        if not unit.is_tidy or len(self._mirror.paths_below(clients)) > 1:
            return
        plan.add(Role.TIDY, Delete(path=clients))
        user = parent_of(clients)
        znode = self._mirror.znode(user)
        if znode is None or (not znode.keys and user not in self._mirror.damaged):
            plan.add(Role.TIDY, Delete(path=user))

    def _complete(self, plan: Plan, path: str, is_new: bool, changes: Mapping[Key, Any]) -> None:
        """Add what Kafka writes together with this znode."""
        [kind, *_] = next(iter(changes))
        if kind == "topic" and is_new:
            # Kafka creates it with every topic. The settings, if any, are a change of their own.
            config = f"{TOPIC_CONFIGS}/{name_of(path)}"
            # The mirror is not sufficient: no notification reports that another controller has
            # deleted a topic without settings.
            if config not in self.known:
                plan.ensure(config, encode_config({}))
        elif kind in ("config", "client_quota", "scram"):
            plan.add(Role.NOTIFY, config_notification(path))
        elif kind == "acl":
            pattern = pattern_of(path)
            is_literal = pattern.pattern_type == AclPatternType.LITERAL
            folder = LITERAL_ACL_CHANGES if is_literal else EXTENDED_ACL_CHANGES
            change = Create(
                path=f"{folder}/{ACL_CHANGE_PREFIX}",
                data=encode_acl_change(pattern),
                sequential=True,
            )
            plan.add(Role.NOTIFY, change)


def config_notification(path: str) -> Create:
    """Return the creation of the notification that the settings in the znode `path` changed."""
    return Create(
        path=f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}",
        data=encode_config_change(path.removeprefix(f"{CONFIG}/")),
        sequential=True,
    )
