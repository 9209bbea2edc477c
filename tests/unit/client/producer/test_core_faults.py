"""Producers keep their promises under random faults that a seed determines.

With an idempotent producer, every acknowledged record is in the log exactly once, at its reported
offset and in the order of sending. With any producer, every record has exactly one outcome.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plog.client.producer.producer_batch import SendHandle
from plog.errors import ErrorCode
from plog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from plog.wire.schema import ApiMessage
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite

PARTITIONS = 3
IDEMPOTENT_SEEDS = range(40)
OTHER_SEEDS = range(12)


REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD]
DOUBTS = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]


class Storm:
    """Send records while connections break, responses are lost and the broker restarts."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.chance = chance = random.Random(seed)
        self.site = ProducerSite(
            seed=seed,
            partitions=PARTITIONS,
            topic={"max_message_bytes": str(chance.choice([700, 1 << 20, 1 << 20]))},
            batch_size=chance.choice([200, 1_000, 16_384]),
            linger_ms=chance.choice([0, 5, 50]),
            compression_type=chance.choice(["none", "none", "lz4", "gzip"]),
            delivery_timeout_ms=chance.choice([700, 2_000, 20_000]),
            request_timeout_ms=chance.choice([200, 600]),
            buffer_memory=chance.choice([20_000, 1 << 20]),
            reconnect_backoff_max_ms=chance.choice([50, 1_000]),
            retry_backoff_max_ms=chance.choice([100, 1_000]),
            **options,
        )
        self.handles: list[tuple[bytes, SendHandle]] = []
        self.outcomes: Counter[bytes] = Counter()
        self.mood = "calm"
        self.site.sim.on_request = self.fault
        self.site.sim.interfere = self.interfere

    def fault(self, request: ApiMessage) -> str | None:
        """In a flaky network, break some connections before a request or its response arrives."""
        if not isinstance(request, ProduceRequest) or self.mood != "flaky":
            return None
        return self.chance.choice([None, None, "drop", "lose"])

    def interfere(self, request: ApiMessage, ask: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """A moody broker refuses some requests and returns uncertain errors for others."""
        if not isinstance(request, ProduceRequest) or self.mood != "moody" or request.acks == 0:
            return ask()
        whim = self.chance.choice(["fine", "refuse", "doubt"])
        return self.refusal(request) if whim == "refuse" else self.answer(ask(), whim)

    async def refusal(self, request: ProduceRequest) -> ProduceResponse:
        await self.site.sim.sleep(0.003)
        code = self.chance.choice(REFUSALS)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=x.index, error_code=code, base_offset=-1)
                        for x in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    async def answer(self, asked: Awaitable[ProduceResponse], whim: str) -> ProduceResponse:
        response = await asked
        if whim == "doubt":
            for partition in response.responses[0].partition_responses:
                if not partition.error_code:
                    partition.error_code = self.chance.choice(DOUBTS)
        return response

    async def send_all(self, count: int) -> None:
        for number in range(count):
            partition = self.chance.randrange(PARTITIONS)
            value = b"%d/%d " % (partition, number) + b"x" * self.chance.randrange(120)
            handle = await self.site.core.send_soon(
                TOPIC, value, partition=partition, on_delivery=self.counter(value)
            )
            self.handles.append((value, handle))
            if self.chance.random() < 0.3:
                await self.site.sim.sleep(self.chance.random() * 0.1)

    def counter(self, value: bytes) -> Any:
        return lambda metadata, error: self.outcomes.update([value])

    def trouble(self) -> None:
        """Change the fault of the broker or the network after a while."""
        sim, chance = self.site.sim, self.chance
        self.mood = chance.choice(
            ["calm", "calm", "flaky", "moody", "cut", "restart", "forgetful", "deaf", "refuse"]
        )
        sim.deaf, sim.refuses = self.mood == "deaf", self.mood == "refuse"
        if self.mood in ("cut", "refuse"):
            sim.drop_all()
        if self.mood == "forgetful":  # A snapshot of producers holds one batch of each.
            for partition in range(PARTITIONS):
                log = sim.broker.log(TOPIC, partition)
                if log.log_end_offset > log._segments.active.base_offset:
                    log.roll()
        if self.mood in ("restart", "forgetful"):
            sim.restart()
        if not self.is_over:
            sim.call_later(chance.random() * 0.5, self.trouble)

    is_over = False

    def run(self, count: int = 300) -> None:
        self.site.know()
        self.trouble()
        self.site.run(self.send_all(count))
        self.is_over = True
        self.site.sim.advance(1_000)
        self.mood, self.site.sim.deaf, self.site.sim.refuses = "calm", False, False
        self.site.flush()

    def log(self) -> dict[int, dict[int, bytes]]:
        """Return the values of each partition by offset."""
        return {
            partition: {x.offset: x.value or b"" for x in self.site.records(partition)}
            for partition in range(PARTITIONS)
        }


@pytest.mark.parametrize("seed", IDEMPOTENT_SEEDS)
def test_idempotent_producer_keeps_its_promises(seed: int) -> None:
    storm = Storm(seed)
    storm.run()
    log = storm.log()
    written = [value for values in log.values() for value in values.values()]
    assert max(Counter(written).values()) == 1, "written twice"
    sent: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for value, handle in storm.handles:
        if handle.error() is None:
            metadata = handle.metadata()
            sent[metadata.partition].append(value)
            if metadata.offset >= 0:
                assert log[metadata.partition][metadata.offset] == value
    for partition, values in sent.items():
        acknowledged = set(values)
        assert [x for x in log[partition].values() if x in acknowledged] == values


@pytest.mark.parametrize("seed", IDEMPOTENT_SEEDS)
def test_every_record_has_one_outcome_and_all_memory_is_freed(seed: int) -> None:
    storm = Storm(1_000 + seed)
    storm.run()
    assert all(handle.done() for _, handle in storm.handles)
    assert set(storm.outcomes.values()) == {1}
    assert len(storm.outcomes) == len(storm.handles)
    storm.site.sim.advance(2_000)  # Requests of expired records have ended, too.
    metrics = storm.site.core.metrics()
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert metrics["requests-in-flight"] == 0
    storm.site.run(storm.site.core.close())


@pytest.mark.parametrize("seed", OTHER_SEEDS)
@pytest.mark.parametrize("options", [{"acks": "1"}, {"enable_idempotence": False}])
def test_producer_without_idempotence_keeps_acknowledged_records(
    seed: int, options: dict[str, Any]
) -> None:
    storm = Storm(seed, **options)
    storm.run()
    written = {value for values in storm.log().values() for value in values.values()}
    assert {value for value, handle in storm.handles if handle.error() is None} <= written
    assert set(storm.outcomes.values()) == {1}


@pytest.mark.parametrize("seed", OTHER_SEEDS)
def test_one_request_in_flight_keeps_order_without_idempotence(seed: int) -> None:
    storm = Storm(seed, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    storm.run()
    sent: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for value, handle in storm.handles:
        if handle.error() is None:
            sent[handle.metadata().partition].append(value)
    for partition, values in storm.log().items():
        last = {value: offset for offset, value in values.items()}
        first = {value: offset for offset, value in reversed(values.items())}
        for earlier, later in zip(sent[partition], sent[partition][1:], strict=False):
            assert first[earlier] < last[later]
