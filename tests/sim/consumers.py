"""Scripted consumers: they read partitions by long polls and fetch sessions, and seek at random.

A consumer reads one to three partitions for a while, then seeks: to the start, to the end, to a
time, or to any known offset, which often lies inside a batch. Positions advance only by records
that were read, so a gap or a step back in a poll is the broker's fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plog.errors import ErrorCode
from plog.wire.api_keys import ApiKey
from plog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tests.sim.checker import Anomaly
from tests.sim.client import PASSING_ERRORS, check_code
from tests.sim.network import ConnectionLost
from tests.sim.reader import (
    EARLIEST,
    FIRST_SESSION_VERSION,
    FIRST_TOPIC_ID_VERSION,
    FIRST_ZSTD_VERSION,
    Assigned,
    Reader,
    Session,
    match_partitions,
)
from tests.sim.topics import Sight

if TYPE_CHECKING:
    from tests.sim.world import World

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Consumer(Reader):
    """A consumer that reads, seeks and continues reading."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._positions: dict[Assigned, int] = {}
        self._session: Session | None = None
        self._tells_epochs = self.chance.random() < 0.5

    async def run(self) -> None:
        while self.world.working:
            await self.world.pause(self.chance)
            try:
                await self._assign()
                for _ in range(self.chance.randint(3, 25)):
                    if not self._positions:
                        break
                    await self._fetch()
                    await self.world.pause(self.chance)
                    if self.chance.random() < 0.1:
                        await self._seek(self.chance.choice(list(self._positions) or [None]))
            except ConnectionLost:
                self._session = None

    async def _assign(self) -> None:
        sights = await self.topics()
        if self.world.has_several_brokers:
            self._session = None  # It belongs to a connection to one broker.
            self.go_to_any_leader()
            await self.connected()
        by_id = self.serves_topic_ids(ApiKey.FETCH, FIRST_TOPIC_ID_VERSION)
        everything = [
            Assigned(name, sight.topic_id, number, self._epoch(sight, number))
            for name, sight in sorted(sights.items())
            for number in range(sight.partitions)
            if self.world.may_read(name)
            and (by_id or not self.world.may_be_deleted(name))
            and self.may_use(name, number)
        ]
        count = min(len(everything), self.chance.randint(1, 3))
        chosen = self.chance.sample(everything, count)
        # Continue from a position reached earlier: only then would a step back show.
        reached = {assigned.key: position for assigned, position in self._positions.items()}
        self._positions = {assigned: reached.get(assigned.key, -1) for assigned in chosen}
        for assigned in chosen:
            if self._positions[assigned] < 0:
                await self._seek(assigned)

    def _epoch(self, sight: Sight, number: int) -> int:
        """Return the leader epoch to send; -1 for a consumer that sends none."""
        return sight.leader_epochs.get(number, -1) if self._tells_epochs else -1

    async def _seek(self, assigned: Assigned | None) -> None:
        if assigned is None:
            return
        if self.world.may_be_deleted(assigned.topic):
            self._positions[assigned] = 0  # The name may refer to another topic by now.
            return
        known = self.world.history.partition(assigned.key)
        how = self.chance.randrange(5)
        if how == 0 and known.values:
            self._positions[assigned] = self.chance.choice(list(known.values))
            return
        if how == 1:
            offset = await self.end_offset(assigned)
        elif how == 2 and known.timestamps:
            offset = await self._offset_for_time(assigned)
        else:
            found = await self.list_offset(assigned, EARLIEST)
            offset = None if found is None else found.offset
        self._move(assigned, offset)

    async def _offset_for_time(self, assigned: Assigned) -> int | None:
        known = self.world.history.partition(assigned.key)
        timestamp = self.chance.choice(list(known.timestamps.values())) + self.chance.choice(
            (-1, 0, 1)
        )
        found = await self.list_offset(assigned, timestamp)
        if found is None:
            return None
        if found.offset < 0:
            return await self.end_offset(assigned)
        self.world.history.check_time(assigned.key, timestamp, found.offset, found.timestamp)
        return found.offset

    def _move(self, assigned: Assigned, offset: int | None) -> None:
        if offset is None:
            self._positions.pop(assigned, None)
        else:
            self._positions[assigned] = offset

    async def _fetch(self) -> None:
        connection = await self.connected()
        if self._session is None or self.chance.random() < 0.03:
            at_least = 4
            if any(self.world.may_be_deleted(assigned.topic) for assigned in self._positions):
                at_least = FIRST_TOPIC_ID_VERSION
            self._session = Session(self.version(ApiKey.FETCH, at_least))
        session = self._session
        if not session.by_id and any(
            self.world.may_be_deleted(assigned.topic) for assigned in self._positions
        ):
            self._session = None
            return
        request = self.fetch_request(session, self._positions, self.chance.choice((0, 50, 500)))
        known_ends = {
            key: self.world.history.known_end(key.key, key.leader_epoch) for key in self._positions
        }
        life = self.world.service.life_number
        answer = await self.ask(
            request, session.version, FetchResponse, connection, request.max_wait_ms
        )
        if answer.error_code:
            check_code(answer.error_code, "Fetch", (*PASSING_ERRORS, *_SESSION_ERRORS))
            self._session = None
            return
        session.answered(answer.session_id)
        found = match_partitions(answer, self._positions, by_id=session.by_id)
        self._check_all_answered(session, request, found)
        for assigned, data in found.items():
            await self._handle_response(assigned, data, session.version, known_ends[assigned], life)

    def _check_all_answered(
        self, session: Session, request: FetchRequest, found: Mapping[Assigned, PartitionData]
    ) -> None:
        """Check that a response outside a session contains every requested partition."""
        if request.session_epoch <= 0 and len(found) != len(self._positions):
            raise Anomaly(
                "bad-answer", f"{len(found)} of {len(self._positions)} partitions answered"
            )
        if len(self._positions) != 1 or session.version < FIRST_SESSION_VERSION:
            return
        for assigned, data in found.items():
            waiting = data.high_watermark > self._positions[assigned]
            if not data.error_code and not data.records and waiting:
                raise Anomaly(
                    "empty-poll",
                    f"{assigned.topic}-{assigned.partition} at {self._positions[assigned]}: "
                    f"nothing below the high watermark {data.high_watermark}",
                )

    async def _handle_response(
        self, assigned: Assigned, data: PartitionData, version: int, known_end: int, life: int
    ) -> None:
        position = self._positions[assigned]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(assigned, position, life)
        elif (
            data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            and version < FIRST_ZSTD_VERSION
        ):
            self._session = None  # The next response may have a newer epoch.
        elif data.error_code:
            check_code(data.error_code, f"Fetch of {assigned.topic}", PASSING_ERRORS)
            del self._positions[assigned]
        else:
            _, self._positions[assigned] = self.take(assigned, data, position, known_end)

    async def _out_of_range(self, assigned: Assigned, position: int, life: int) -> None:
        """Check that only retention could have removed the requested offset."""
        plan = self.world.plan_of(assigned.topic)
        # In a cluster, a deposed leader may lack the records.
        if plan is None or not plan.is_durable or self.world.has_several_brokers:
            del self._positions[assigned]
            return
        found = await self.list_offset(assigned, EARLIEST)
        same_life = life == self.world.service.life_number
        if found is not None and found.offset <= position and same_life:
            raise Anomaly(
                "false-out-of-range",
                f"{assigned.topic}-{assigned.partition} starts at {found.offset}, "
                f"but {position} was out of range",
            )
        self._move(assigned, None if found is None else found.offset)
