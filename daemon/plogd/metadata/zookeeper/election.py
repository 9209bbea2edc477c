"""The election of the controller: the ephemeral znode /controller, and /controller_epoch.

A broker becomes the controller by creating /controller and raising the epoch in one transaction.
The epoch is the controller's term, and each of its writes checks the version of /controller_epoch,
so a former controller cannot write. Source: Kafka 3.9 KafkaZkClient.
registerControllerAndIncrementControllerEpoch.
"""

from __future__ import annotations

from plog.zookeeper.operations import (
    Check,
    Create,
    MultiFailed,
    NoNode,
    SetData,
    ZnodeStat,
)
from plogd.metadata.zookeeper.broker_znodes import (
    decode_controller,
    decode_epoch,
    encode_controller,
    kraft_epoch_of,
)
from plogd.metadata.zookeeper.paths import CONTROLLER, CONTROLLER_EPOCH
from plogd.metadata.zookeeper.session import LOST, Session
from plogd.ports import Clock, Later, Report


class Election:
    """This broker's candidacy. `epoch` is None while it is not the controller."""

    def __init__(self, session: Session, *, broker_id: int, clock: Clock, report: Report) -> None:
        self._session = session
        self._broker_id = broker_id
        self._clock = clock
        self._report = report
        self._epoch_version = -1
        self.epoch: int | None = None

    def fence(self, term: int) -> Check | None:
        """Return the operation that lets a write of this term fail once the term is over.

        None if this broker knows that it is over.
        """
        if term != self.epoch:
            return None
        return Check(path=CONTROLLER_EPOCH, version=self._epoch_version)

    def resign(self) -> bool:
        """Stop being the controller; return whether this broker was the controller."""
        was_controller = self.epoch is not None
        self.epoch = None
        return was_controller

    async def win(self) -> tuple[int, Later[None]]:
        """Wait until this broker is the controller.

        Returns its epoch, and a Later that completes when /controller changes. The caller assigns
        `epoch` when it has loaded the cluster's state.
        """
        while True:
            await self._session.connected()
            try:
                found = await self._round()
            except LOST:
                # The transaction may have been applied: the next round finds out.
                continue
            if found is not None:
                epoch, self._epoch_version, changed = found
                return epoch, changed

    async def _round(self) -> tuple[int, int, Later[None]] | None:
        """Try to become the controller; return epoch, version and watch, or None to try again."""
        changed: Later[None] = Later()
        connection = self._session.connections
        # A server that lags behind may still show the znode of a former term of this session.
        await self._session.sync()
        try:
            data, stat = await self._session.get(CONTROLLER, lambda: changed.succeed(None))
        except NoNode:
            await self._create()
            return None
        if stat.ephemeral_owner == self._session.session_id:
            return await self._own_epoch(stat, changed)
        self._check_kraft(data)
        await self._session.until_disconnected(changed, connection)
        return None

    def _check_kraft(self, data: bytes) -> None:
        try:
            # A KRaft controller has migrated the cluster, and would be overruled.
            if kraft_epoch_of(data) > 0:
                self._report(
                    "cannot become the controller: a KRaft controller has taken over this "
                    "ZooKeeper chroot; use another chroot",
                    level="error",
                )
            decode_controller(data)
        except ValueError as error:
            self._report(
                "cannot decode the znode {path}: {error}; delete it with plog zookeeper-shell",
                path=CONTROLLER,
                error=error,
                level="error",
            )

    async def _own_epoch(
        self, stat: ZnodeStat, changed: Later[None]
    ) -> tuple[int, int, Later[None]] | None:
        """Return the epoch of /controller, which this session owns."""
        epoch, epoch_stat = await self._read_epoch()
        # Read once more: if the znode was deleted in the meantime, another broker may have raised
        # the epoch, and this broker would mistake that epoch for its own.
        again = await self._session.exists(CONTROLLER)
        if again is None or again.czxid != stat.czxid:
            return None
        return epoch, epoch_stat.version, changed

    async def _read_epoch(self) -> tuple[int, ZnodeStat]:
        data, stat = await self._session.get(CONTROLLER_EPOCH)
        try:
            return decode_epoch(data), stat
        except ValueError as error:
            raise ValueError(
                f"cannot decode the znode {CONTROLLER_EPOCH}: {error}; correct it with plog"
                " zookeeper-shell"
            ) from error

    async def _create(self) -> None:
        """Create /controller and raise the epoch, unless another broker is faster."""
        try:
            epoch, stat = await self._read_epoch()
        except NoNode:
            await self._try(Create(path=CONTROLLER_EPOCH, data=b"0"))
            return
        data = encode_controller(self._broker_id, self._clock.now_ms())
        await self._try(
            Create(path=CONTROLLER, data=data, ephemeral=True),
            SetData(path=CONTROLLER_EPOCH, data=b"%d" % (epoch + 1), version=stat.version),
        )

    async def _try(self, *operations: Create | SetData) -> None:
        try:
            await self._session.multi(operations)
        except MultiFailed:
            # Another broker was faster. The next round reads what it has written.
            pass
