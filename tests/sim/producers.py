"""Scripted producers: a plain one that never retries, and an idempotent one that always does.

A plain producer keeps several requests in flight and forgets those whose response is lost. An
idempotent producer keeps up to five batches of one partition in flight and retries each until it is
acknowledged, in order and with its original sequence number, as Kafka's own producer does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from plog.errors import ErrorCode
from plog.wire.api_keys import ApiKey
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from tests.sim.batches import (
    FIRST_TOPIC_ID_VERSION,
    TIMEOUT_MS,
    Batch,
    Values,
    match_results,
    produce_request,
)
from tests.sim.checker import Anomaly
from tests.sim.client import PASSING_ERRORS, Client, check_code
from tests.sim.network import Connection, ConnectionLost
from tests.sim.topics import Sight

if TYPE_CHECKING:
    from tests.sim.world import World

ACKS_ALL = -1
MAX_IN_FLIGHT = 5
_MAX_WINDOW = 9
_APPENDED_ERRORS = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The errors of batches that did not become durable, or were not replicated, in time."""
_NEW_IDENTITY = 0.2
"""How often an idle producer starts a new session: first batches are a special case."""


class PlainProducer(Client):
    """Sends each batch once, to one or several partitions at a time, with a fixed `acks`."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._acks = self.chance.choice((ACKS_ALL, ACKS_ALL, 1, 0))
        self._in_flight = 0
        self._sessions = 0
        self._session_connection: Connection | None = None
        self._values = Values(world, name, self.chance)

    async def run(self) -> None:
        while self.world.working:
            await self.world.pause(self.chance)
            try:
                sights = await self.topics()
                self.go_to_any_leader()
                for _ in range(self.chance.randrange(1, 8)):
                    if sights and self._in_flight < MAX_IN_FLIGHT:
                        self._send(await self.connected(), self._some_batches(sights))
                    await self.world.pause(self.chance)
            except ConnectionLost:
                continue

    def _some_batches(self, sights: Mapping[str, Sight]) -> list[Batch]:
        """Return batches for one to three partitions; numbers rise per connection."""
        if self._session_connection is not self.connection:
            self._session_connection = self.connection
            self._sessions += 1
            session = f"{self.name}.{self._sessions}"
            self._values = Values(self.world, session, self.chance)
        partitions = [
            (name, number)
            for name, sight in sorted(sights.items())
            for number in range(sight.partitions)
            if self.world.may_write(name) and self.may_use(name, number)
        ]
        chosen = self.chance.sample(partitions, min(len(partitions), self.chance.randint(1, 3)))
        return [self._values.batch(sights[name], name, number) for name, number in chosen]

    def _send(self, connection: Connection, batches: Sequence[Batch]) -> None:
        if not batches:
            return  # The broker leads no partition.
        by_id = self.serves_topic_ids(ApiKey.PRODUCE, FIRST_TOPIC_ID_VERSION) and self._wants_id(
            batches
        )
        if by_id:
            version = FIRST_TOPIC_ID_VERSION
        else:
            at_least = max(batch.min_version for batch in batches)
            version = self.version(ApiKey.PRODUCE, at_least, FIRST_TOPIC_ID_VERSION - 1)
        request = produce_request(batches, self._acks)
        if self._acks == 0:
            connection.request(request, version, expects_answer=False)
            return
        self._in_flight += 1
        self.world.start(self._handle_response(connection, request, version, batches), self.name)

    def _wants_id(self, batches: Sequence[Batch]) -> bool:
        # By the time a request arrives, a name may refer to another topic; an id may not.
        may_go = any(self.world.may_be_deleted(batch.topic) for batch in batches)
        return may_go or self.chance.random() < 0.5

    async def _handle_response(
        self,
        connection: Connection,
        request: ProduceRequest,
        version: int,
        batches: Sequence[Batch],
    ) -> None:
        try:
            answer = await self.ask(request, version, ProduceResponse, connection)
        except ConnectionLost:
            return
        finally:
            self._in_flight -= 1
        for batch, result in match_results(
            answer, batches, by_id=version >= FIRST_TOPIC_ID_VERSION
        ):
            if result.error_code:
                self.check_produced(result.error_code, f"Produce to {batch.topic}")
            elif self.world.has_several_brokers and self._acks != ACKS_ALL:
                continue  # The next leader may not have it.
            elif version >= FIRST_TOPIC_ID_VERSION or not self.world.may_be_deleted(batch.topic):
                self.world.history.acknowledged(
                    batch.key,
                    result.base_offset,
                    batch.values,
                    append_time_ms=result.log_append_time_ms,
                    # Sent once, over a connection that still works.
                    life=self.world.writer_at(connection),
                )


class IdempotentProducer(Client):
    """Writes to one partition of a permanent topic, each record exactly once.

    With `is_single`, each batch has a single record, whose key other producers use often, and is
    sent when all others are acknowledged.
    """

    def __init__(
        self, world: World, name: str, topic: str, partition: int, *, is_single: bool = False
    ) -> None:
        super().__init__(world, name)
        self._is_single = is_single
        self._max_window = 1 if is_single else _MAX_WINDOW
        self._topic = topic
        self._partition = partition
        self._sight: Sight | None = None
        self._producer_id = -1
        self._producer_epoch = -1
        self._identities = 0
        self._values = Values(world, name, self.chance, single=is_single)
        self._unacknowledged: deque[Batch] = deque()
        self._sent = 0
        """How many batches, from the oldest on, were sent over this connection."""
        self._in_flight = 0
        self._rewinding = False
        """A batch was rejected: wait until all in flight are answered, then resend all of them."""
        self._used_connection: Connection | None = None
        self._again: Batch | None = None
        """The last acknowledged batch, if it is to be sent again."""

    async def run(self) -> None:
        while self.is_working() or self._unacknowledged or self._again:
            await self.world.pause(self.chance)
            if not self._unacknowledged:
                await self._rest()
            try:
                if self.world.has_several_brokers:
                    await self._find_leader()
                connection = await self.connected()
                is_done = not self._unacknowledged and self._again is None
                if is_done and self.chance.random() < _NEW_IDENTITY:
                    self._producer_id = -1
                if self._sight is None:
                    self._sight = (await self.topics()).get(self._topic)
                    continue
                if self._producer_id < 0:
                    await self._take_identity()
                    continue
            except ConnectionLost:
                continue
            if connection is not self._used_connection:
                if self._used_connection is not None:
                    self._used_connection.drop()  # In a cluster, it may lead to an old leader.
                self._used_connection = connection
                self._sent = self._in_flight = 0
                self._rewinding = False
            if self._again and not self._unacknowledged:
                self._unacknowledged.append(self._again)
                self._again = None
            elif self.is_working() and len(self._unacknowledged) < self._max_window:
                self._unacknowledged.append(self._new_batch(self._sight))
            self._send_more(connection)

    async def _find_leader(self) -> None:
        if self.needs_metadata:
            await self.topics()
        self.go_to(self._topic, self._partition)

    def is_working(self) -> bool:
        """Return whether the producer sends new batches."""
        return self.world.working

    async def _rest(self) -> None:
        """Wait before the next batch; no batch is unacknowledged."""

    def _note_acknowledged(self, batch: Batch, base_offset: int) -> None:
        """Handle the first acknowledgment of a batch, which may be sent again."""

    async def _take_identity(self) -> None:
        version = self.version(ApiKey.INIT_PRODUCER_ID, 0, 5)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self.ask(request, version, InitProducerIdResponse)
        if answer.error_code:
            check_code(answer.error_code, "InitProducerId", PASSING_ERRORS)
            return
        self.world.take_producer_id(answer.producer_id, answer.producer_epoch)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
        self._identities += 1
        self._again = None
        self._values = Values(
            self.world,
            f"{self.name}.{self._identities}",
            self.chance,
            single=self._is_single,
        )

    def _new_batch(self, sight: Sight) -> Batch:
        return self._values.batch(
            sight, self._topic, self._partition, self._producer_id, self._producer_epoch
        )

    def _send_more(self, connection: Connection) -> None:
        if self._rewinding:
            if self._in_flight:
                return
            self._rewinding, self._sent = False, 0
        while self._sent < len(self._unacknowledged) and self._in_flight < MAX_IN_FLIGHT:
            batch = self._unacknowledged[self._sent]
            if batch.first_sent_in_life is None:
                batch.first_sent_in_life = self.world.service.life_number
            batch.attempts += 1
            self._sent += 1
            self._in_flight += 1
            self.world.start(self._handle_response(connection, batch), self.name)

    async def _handle_response(self, connection: Connection, batch: Batch) -> None:
        version = self.version(ApiKey.PRODUCE, batch.min_version)
        request = produce_request([batch], acks=-1)
        try:
            answer = await self.ask(request, version, ProduceResponse, connection)
        except ConnectionLost:
            self._has_no_outcome(batch)
            return  # The counts belong to the lost connection.
        if connection is not self._used_connection:
            self._has_no_outcome(batch)
            return
        self._in_flight -= 1
        by_id = version >= FIRST_TOPIC_ID_VERSION
        for _, result in match_results(answer, [batch], by_id=by_id):
            if batch not in self._unacknowledged:
                continue  # Abandoned in the meantime.
            if not result.error_code:
                self._acknowledged(batch, result, connection)
            elif result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._out_of_order(batch, connection)
            else:
                self.check_produced(result.error_code, f"Produce to {self._topic}")
                if not self.world.has_several_brokers:
                    batch.is_appended = False
                batch.is_appended |= result.error_code in _APPENDED_ERRORS
                self._rewinding = True

    def _has_no_outcome(self, batch: Batch) -> None:
        """Note that an attempt may have appended a batch, although a retry may be rejected.

        A broker that has just become the leader of the batch may reject it without looking for it,
        with NOT_ENOUGH_REPLICAS for example, and accept the next one a moment later.
        """
        if self.world.has_several_brokers:
            batch.is_appended = True

    def _acknowledged(
        self, batch: Batch, result: PartitionProduceResponse, connection: Connection
    ) -> None:
        for earlier in self._unacknowledged:
            if earlier is batch:
                break
            # An attempt whose response was lost may have appended both batches, and only the retry
            # of the earlier one has failed. The final check of the log finds batches out of order.
            earlier.is_appended |= min(earlier.attempts, batch.attempts) > 1
            # A retry of a batch that has been appended is a duplicate.
            if not earlier.is_appended:
                raise Anomaly(
                    "nonmonotonic-send",
                    f"{batch.values[0]!r} was appended, not one before it",
                )
        self._unacknowledged.remove(batch)
        self._sent -= 1
        if not batch.is_acknowledged:
            batch.is_acknowledged = True
            self._note_acknowledged(batch, result.base_offset)
        is_new = batch.first_sent_in_life == self.world.service.life_number
        self.world.history.acknowledged(
            batch.key,
            result.base_offset,
            batch.values,
            append_time_ms=result.log_append_time_ms,
            life=self.world.writer_at(connection) if is_new else None,
        )

    def _out_of_order(self, batch: Batch, connection: Connection) -> None:
        if batch is not self._unacknowledged[0]:
            self._rewinding = True  # An earlier batch was rejected.
            return
        if self.world.leader_epoch(self._topic, self._partition, connection) is None:
            # A deposed leader lacks the batches that its successor has acknowledged.
            self._rewinding = self.needs_metadata = True
            return
        if batch.is_acknowledged or batch.first_sent_in_life == self.world.service.life_number:
            which = "the last one" if batch.is_acknowledged else "the next one"
            raise Anomaly("false-out-of-order", f"{batch.values[0]!r} is {which} and was rejected")
        # A restarted broker remembers only each producer's last batch, as Kafka's does. Whether
        # this batch was appended is unknown, so the producer starts a new session with the next
        # one.
        self.world.count("abandoned batches", len(self._unacknowledged))
        self._unacknowledged.clear()
        self._again = None
        self._sent = 0
        self._producer_id = -1
