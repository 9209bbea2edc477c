"""Exactly the committed records are visible, once and in order, despite faults."""

from __future__ import annotations

import random
from typing import Any

import pytest

from plog.errors import ErrorCode, KafkaError, TransactionAbortable
from plog.types import TopicPartition
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from plog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from plog.wire.messages.end_txn import EndTxnRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.produce import ProduceRequest
from plog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from plog.wire.schema import ApiMessage
from tests.helpers.client.transaction_world import Fault
from tests.unit.client.transactions.site import NAME, TOPIC, Site

PARTITIONS = 3
KINDS: list[type[ApiMessage]] = [
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
]
PASSING: list[Fault] = ["drop", "lose", "hang", ErrorCode.CONCURRENT_TRANSACTIONS, 14, 16]
OF_BATCHES: list[Fault] = [
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
]
FOR_GOOD: list[Fault] = [ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE]


class Application:
    """An application that handles every error as documented and records its commits."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.site = Site(level=self.chance.choice([1, 2]), partitions=PARTITIONS, **self._options())
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.offset = -1
        self._count = 0

    def _options(self) -> dict[str, Any]:
        return {
            "linger_ms": self.chance.choice([0, 5]),
            "batch_size": self.chance.choice([60, 200, 16384]),
            "request_timeout_ms": 500,
            "delivery_timeout_ms": self.chance.choice([600, 5000]),
        }

    def transaction(self) -> None:
        """Begin a transaction, and commit or abort it."""
        sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        offset = self.offset
        try:
            for _ in range(self.chance.randrange(12)):
                self._send(sent)
                if self.chance.random() < 0.1:
                    self.site.flush()
                if self.chance.random() < 0.1:
                    self._add_fault()
            if self.chance.random() < 0.3:
                offset += 1
                offsets = {TopicPartition(TOPIC, 0): offset}
                self.site.run(self.site.core.send_offsets_to_transaction(offsets, "billing", 600))
            if self.chance.random() < 0.05 and NAME in self.site.world.producers:
                self.site.flush()
                self.site.world.time_out(NAME)
            if self.chance.random() < 0.7:
                self.site.commit(600)
                for partition in range(PARTITIONS):
                    self.committed[partition] += sent[partition]
                self.offset = offset
            else:
                self.site.abort(600)
            self.site.begin()
        except TransactionAbortable:
            self._abort()
        except KafkaError:
            self._start_again()

    def _abort(self) -> None:
        try:
            self.site.abort(600)
            self.site.begin()
        except KafkaError:
            self._start_again()

    def _start_again(self) -> None:
        world = self.site.world
        world.faults = [x for x in world.faults if x[0] is not InitProducerIdRequest]
        old, self.site = self.site, Site(self.site.world, **self._options())
        old.run(old.core.close(1))

    def _send(self, sent: list[list[bytes]]) -> None:
        partition = self.chance.randrange(PARTITIONS)
        self._count += 1
        value = b"%d" % self._count
        self.site.send(value, partition=partition)
        sent[partition].append(value)

    def _add_fault(self) -> None:
        kind = self.chance.choice(KINDS)
        kinds_of_fault = PASSING
        # A commit that is refused after a lost response may have succeeded.
        if kind is not EndTxnRequest and self.chance.random() < 0.3:
            kinds_of_fault = OF_BATCHES if kind is ProduceRequest else FOR_GOOD
        count = self.chance.choice([1, 1, 1, 2, 4])
        self.site.world.faults += [(kind, self.chance.choice(kinds_of_fault))] * count


@pytest.mark.parametrize("seed", range(40))
def test_exactly_the_committed_records_are_visible_once(seed: int) -> None:
    story = Application(seed)
    for _ in range(15):
        story.transaction()
    world = story.site.world
    assert [story.site.committed(x) for x in range(PARTITIONS)] == story.committed
    committed = world.offsets.get(("billing", TopicPartition(TOPIC, 0)), -1)
    assert committed == story.offset
