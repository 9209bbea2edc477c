"""The queue of writes: transactions of up to 64 changes, one at a time.

Writes that wait are sent together, like the batches of the embedded store. If an operation fails,
ZooKeeper applies nothing of its transaction: the unit with this operation gets its outcome or is
planned again, and the other units are sent again. If the connection is lost, the outcome of the
transaction is unknown; the writer then waits for the next connection and reads the znodes again.

Fenced means that nothing was applied: it is reported only after that read. Source: Kafka 3.9
KafkaZkClient.retryRequestsUntilConnected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from plog.errors import KafkaStorageError
from plog.zookeeper.operations import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    ZnodeStat,
)
from plogd.metadata.store import Change, Fenced, Key, Outcome
from plogd.metadata.zookeeper.mirror import ZnodeMirror
from plogd.metadata.zookeeper.reading import read_znodes
from plogd.metadata.zookeeper.session import LOST, Session
from plogd.metadata.zookeeper.topic_removal import remove_topic
from plogd.metadata.zookeeper.write_plan import Fencing, Plan, Planner, Role, WriteUnit
from plogd.notify_all import notify_all
from plogd.ports import Later, Turn, spawn

MAX_CHANGES: Final = 64
"""Largest number of changes in one transaction."""
_MAX_BYTES: Final = 512 * 1024
"""A transaction with this many bytes is complete. ZooKeeper rejects more than 1 MiB."""
_MAX_ATTEMPTS: Final = 100


class _Write:
    """A write of the store's caller, of one or more units."""

    def __init__(self, units: Sequence[WriteUnit]) -> None:
        self.units = units
        self.later: Later[list[Outcome]] = Later()

    @property
    def is_done(self) -> bool:
        return all(unit.is_done for unit in self.units)

    def complete(self) -> None:
        """Complete the caller's Later."""
        errors = [unit.error for unit in self.units if unit.error is not None]
        if errors:
            self.later.fail(errors[0])
        else:
            self.later.succeed([x for unit in self.units for x in unit.outcomes or ()])


class Writer:
    """Writes units in order. `notify` returns the calls that notify watchers of changed keys."""

    def __init__(
        self,
        session: Session,
        mirror: ZnodeMirror,
        *,
        fencing: Fencing,
        turn: Turn,
        notify: Callable[[Iterable[Key]], Iterable[Callable[[], None]]],
        own_notification: Callable[[str], None],
    ) -> None:
        self._session = session
        self._mirror = mirror
        self._fencing = fencing
        self._turn = turn
        self._notify = notify
        self._own_notification = own_notification
        self._planner = Planner(mirror)
        self._queue: deque[WriteUnit] = deque()
        self._writes: deque[_Write] = deque()
        self._is_busy = False
        self._watcher_errors: list[Exception] = []

    def submit(self, units: Sequence[Sequence[Change]], term: int | None) -> Later[list[Outcome]]:
        """Queue the changes of a write, each unit of which is applied as a whole."""
        keys = [change.key for changes in units for change in changes]
        assert len(set(keys)) == len(keys), "a write can change each key only once"
        write = _Write([WriteUnit(changes=changes, term=term) for changes in units])
        if not write.units:
            write.later.succeed([])
            return write.later
        self._writes.append(write)
        self._queue += write.units
        self._turn.defer(self._pump)  # Writes that are submitted until then share a transaction.
        return write.later

    def forget_topics(self) -> None:
        """Forget which znodes of topics exist, because other brokers may change them now."""
        self._planner.known.clear()

    def _pump(self) -> None:
        if not self._is_busy and self._queue:
            self._is_busy = True
            spawn(self._run()).then(_ignore, _raise)

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = self._take_batch()
                try:
                    await self._write(batch)
                except Exception as error:
                    for unit in batch:
                        if not unit.is_done:
                            unit.error = error
                notify_all(self._completions())
        finally:
            # Even if a callback has failed: the writes behind it must not wait forever.
            self._is_busy = False
            if self._queue:
                self._turn.defer(self._pump)

    def _completions(self) -> list[Callable[[], None]]:
        calls: list[Callable[[], None]] = []
        while self._writes and self._writes[0].is_done:
            calls.append(self._writes.popleft().complete)
        errors, self._watcher_errors = self._watcher_errors, []
        return [*calls, *(partial(_raise, error) for error in errors)]

    # -- batches ------------------------------------------------------------------------------

    def _take_batch(self) -> list[WriteUnit]:
        """Take units of one term from the queue that do not change the same znodes."""
        batch: list[WriteUnit] = []
        touched: set[str] = set()
        count = 0
        while self._queue:
            unit = self._queue[0]
            try:
                paths = set(self._planner.paths_of(unit))
                is_alone = unit.removed_topic is not None
            except ValueError as error:
                unit.error = error
                batch.append(self._queue.popleft())
                continue
            count += len(unit.changes)
            if batch and (
                is_alone or count > MAX_CHANGES or touched & paths or unit.term != batch[0].term
            ):
                break
            touched |= paths
            batch.append(self._queue.popleft())
            if is_alone:
                break
        return batch

    async def _write(self, batch: list[WriteUnit]) -> None:
        [first, *_] = batch
        if len(batch) == 1 and not first.is_done and first.removed_topic is not None:
            await remove_topic(first, self._session, self._mirror, self._fencing, self._changed)
            self.forget_topics()
            return
        for _ in range(_MAX_ATTEMPTS):
            pending = [unit for unit in batch if not unit.is_done]
            if not pending:
                return
            await self._attempt(pending)
        raise KafkaStorageError(
            f"cannot write to ZooKeeper: other brokers changed the same znodes {_MAX_ATTEMPTS} "
            "times; try again"
        )

    async def _attempt(self, units: list[WriteUnit]) -> None:
        """Send one transaction, and set the outcomes that it decides."""
        # The units of a batch have the same term.
        term = units[0].term
        # Checked first: a former controller's mirror is empty, so its writes would look like
        # conflicts.
        if term is not None and self._fencing.fence(term) is None:
            _set_fenced(units)
            return
        planned = await self._plan(units)
        if not planned:
            return
        operations: list[Operation] = []
        if term is not None:
            fence = self._fencing.fence(term)
            if fence is None:  # The term has ended while a znode was read.
                _set_fenced(unit for unit, _ in planned)
                return
            operations.append(fence)
        owners: list[tuple[WriteUnit, Plan, int] | None] = [None] * len(operations)
        sent: list[tuple[WriteUnit, Plan]] = []
        size_bytes = 0
        for unit, plan in planned:
            size_bytes += plan.size_bytes
            if sent and size_bytes > _MAX_BYTES:
                break
            sent.append((unit, plan))
            owners += [(unit, plan, index) for index in range(len(plan.operations))]
            operations += plan.operations
        try:
            results = await self._session.multi(operations)
        except MultiFailed as failure:
            await self._handle_failure(failure, owners[failure.index], sent)
        except LOST:
            await self._resolve([unit for unit, _ in sent])
        else:
            # The result of the fence, which is None, comes first.
            self._applied(sent, results if term is None else results[1:])

    async def _plan(self, units: list[WriteUnit]) -> list[tuple[WriteUnit, Plan]]:
        planned: list[tuple[WriteUnit, Plan]] = []
        ensured: set[str] = set()
        for unit in units:
            try:
                # An operator may have corrected a znode that was damaged.
                if not unit.is_fresh and self._planner.has_damage(unit):
                    await self._read(unit)
                conflicts = self._planner.conflicts(unit)
                # The mirror may be older than the write that the caller has seen.
                if conflicts is not None and not unit.is_fresh:
                    await self._read(unit)
                    conflicts = self._planner.conflicts(unit)
                plan = None
                if conflicts is None:
                    # A copy, because a unit with an invalid change creates nothing.
                    plan = self._planner.plan(unit, also_ensured := set(ensured))
                    ensured = also_ensured
            except LOST:
                # Nothing was sent; the next attempt waits for the connection.
                await self._session.connected()
                return []
            except (KafkaStorageError, ValueError) as error:
                unit.error = error
                continue
            if plan is None:
                unit.outcomes = conflicts
            elif plan.operations:
                planned.append((unit, plan))
            else:
                unit.outcomes = self._planner.written(unit)
        return planned

    async def _read(self, unit: WriteUnit) -> None:
        changed = await read_znodes(self._session, self._mirror, self._planner.paths_of(unit))
        self._changed(changed)
        unit.is_fresh = True

    def _changed(self, keys: Iterable[Key]) -> None:
        try:
            notify_all(self._notify(keys))
        except Exception as error:
            # A bug of a watcher must not look like the outcome of the write.
            self._watcher_errors.append(error)

    # -- results ------------------------------------------------------------------------------

    def _applied(self, sent: Sequence[tuple[WriteUnit, Plan]], results: Sequence[Result]) -> None:
        """Apply a successful transaction to the mirror, then notify watchers."""
        changed: dict[Key, None] = {}
        position = 0
        for unit, plan in sent:
            for operation, role in zip(plan.operations, plan.roles, strict=True):
                changed.update(dict.fromkeys(self._apply(operation, role, results[position])))
                position += 1
            unit.outcomes = self._planner.written(unit)
        # Watchers first: a client that has its response must not see an older state.
        self._changed(changed)

    def _apply(self, operation: Operation, role: Role, result: Result) -> list[Key]:
        path = operation.path
        if role is Role.NOTIFY:
            self._own_notification(str(result))
            return []
        if isinstance(operation, Create | SetData):
            self._planner.known.add(path)
            if role is Role.ENSURE and not operation.data:
                return []
            version = result.version if isinstance(result, ZnodeStat) else 0
            stat = ZnodeStat(version=version, czxid=0, mzxid=0)
            return self._mirror.put(path, operation.data, stat)
        self._planner.known.discard(path)
        return self._mirror.remove(path)

    async def _handle_failure(
        self,
        failure: MultiFailed,
        owner: tuple[WriteUnit, Plan, int] | None,
        sent: Sequence[tuple[WriteUnit, Plan]],
    ) -> None:
        """Decide what the failure of one operation means; the other units are sent again."""
        if owner is None:
            _set_fenced(unit for unit, _ in sent)
            self._fencing.fenced()
            return
        unit, plan, index = owner
        operation, role = plan.operations[index], plan.roles[index]
        match role, failure.error:
            case Role.ENSURE, NodeExists():
                self._planner.known.add(operation.path)
            case Role.TIDY, _:
                unit.is_tidy = False
            case Role.MAIN, NotEmpty():
                unit.may_delete = False
            case ((Role.ENSURE | Role.MAIN), NoNode()) if isinstance(operation, Create):
                if unit.has_lost_parents:
                    unit.error = ValueError(f"cannot create the znode {operation.path}: no parent")
                unit.has_lost_parents = True
                self._planner.known.clear()
            case Role.MAIN, BadVersion() | NodeExists() | NoNode():
                # Another broker has changed the znode.
                try:
                    await self._read(unit)
                except LOST:
                    await self._session.connected()
            case _:
                unit.error = KafkaStorageError(
                    f"cannot write the znode {operation.path}: {failure.error}"
                )

    async def _resolve(self, units: Sequence[WriteUnit]) -> None:
        """Find out whether a transaction was applied whose response was lost."""
        sent = {id(unit): dict(unit.sent) for unit in units}
        paths = [path for unit in units for path in unit.sent]

        async def read() -> list[Key]:
            # Without this, another server might not have applied the transaction yet.
            await self._session.sync()
            return await read_znodes(self._session, self._mirror, paths)

        changed = await self._session.retry(read)
        self._changed(changed)
        for unit in units:
            unit.is_fresh = True
            is_applied = all(self._is_applied(path, *x) for path, x in sent[id(unit)].items())
            if is_applied or self._has_effect(unit):
                unit.outcomes = self._planner.written(unit)

    def _is_applied(self, path: str, data: bytes | None, old_version: int) -> bool:
        znode = self._mirror.znode(path)
        if znode is None or data is None:
            return znode is None and data is None
        # ABSENT is -1, and the first version 0.
        return znode.data == data and znode.version == old_version + 1

    def _has_effect(self, unit: WriteUnit) -> bool:
        """Return whether the keys have the new values, although another broker wrote later."""
        # Only the controller writes with a term, so nothing can have followed its write.
        return unit.term is None and all(
            self._mirror.get(change.key)[0] == change.value for change in unit.changes
        )


def _set_fenced(units: Iterable[WriteUnit]) -> None:
    for unit in units:
        unit.outcomes = [Fenced()] * len(unit.changes)


def _ignore(_: None) -> None:
    """The writes have their own outcomes."""


def _raise(error: Exception) -> None:
    raise error
