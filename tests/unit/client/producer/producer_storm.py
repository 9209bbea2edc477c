"""A producer under random faults; its reported outcomes are checked against the logs.

    python -m tests.unit.client.producer.producer_storm --seeds 1000          (or --seed 17)

A seed determines settings, senders and faults. Several concurrent senders pass records to one
producer: with keys, with or without partitions, of any size, some invalid, some in callbacks, and
some cancelled while they wait. Meanwhile three brokers (three_brokers.py) lose responses, refuse
requests, leave their outcome in doubt, write twice or late, throttle, move leaders, disconnect,
restart and lose producer state. The topic gets partitions and another max.message.bytes, loses
records, and is deleted and recreated. At the end the producer is flushed, or closed in the middle
of all this.

producer_promises.py checks the result of every run.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from plog.client.errors import BufferExhausted, ClosedError
from plog.client.network.ports import Cancelled, Task
from plog.client.producer.producer_batch import SendHandle
from plog.client.values import RecordMetadata
from plog.errors import KafkaError
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.producer.producer_promises import SLACK_S, Life, Promises, Sent
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite
from tests.unit.client.three_brokers import FATES, NODES, ThreeBrokers

_TOPIC_RESOURCE = 2
_MAX_BLOCK_S = 5.0

TROUBLES = (
    *("calm",) * 4,
    *FATES[1:],
    *("cut", "restart", "forgetful", "deaf", "down", "mixed", "moves", "leaderless", "stale"),
    *("no ids", "more partitions", "limit", "delete records", "delete topic"),
)


class Bugs(logging.Handler):
    """The errors that the client logs, except those of callbacks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("a callback for"):
            self.found.append(self.format(record))


class Storm(Promises):
    """One run of a producer; `options` override the settings that the seed determines."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__()
        self.chance = chance = random.Random(seed)
        self.partitions = chance.choice([1, 3, 3, 6])
        self.delivery_s = chance.choice([0.7, 2.0, 20.0])
        settings: dict[str, Any] = {
            "batch_size": chance.choice([0, 1, 200, 1_000, 16_384]),
            "linger_ms": chance.choice([0, 5, 50, 300]),
            "compression_type": chance.choice(["none", "none", "lz4", "gzip"]),
            "delivery_timeout_ms": int(self.delivery_s * 1000),
            "request_timeout_ms": chance.choice([200, 400]),
            "buffer_memory": chance.choice([5_000, 40_000, 1 << 20]),
            "max_block_ms": int(_MAX_BLOCK_S * 1000),
            "max_request_size": chance.choice([2_000, 1 << 20]),
            "max_in_flight_requests_per_connection": chance.choice([1, 2, 5]),
            "reconnect_backoff_max_ms": chance.choice([50, 1_000]),
            "retry_backoff_max_ms": chance.choice([100, 1_000]),
            "partitioner_availability_timeout_ms": chance.choice([0, 100]),
            "metadata_max_age_ms": chance.choice([300, 60_000]),
        }
        self.settings = settings | options
        self.site = ProducerSite(
            seed=seed,
            partitions=self.partitions,
            topic={"max_message_bytes": chance.choice(["700", "1048576", "1048576"])},
            network=ThreeBrokers,
            **self.settings,
        )
        assert isinstance(self.site.sim, ThreeBrokers)
        self.sim: ThreeBrokers = self.site.sim
        self.sim.fate = self.fate
        # In half of the runs; the others refresh the metadata.
        self.sim.names_leaders = seed % 2 == 0
        self.mood = "calm"
        self.is_over = False
        self.refused: Counter[str] = Counter()
        self.senders = 0
        self.number = 0

    # -- faults of requests -------------------------------------------------------------------

    def fate(self) -> str:
        fate = "fine"
        if self.mood == "mixed":
            fate = self.chance.choice(["fine", "fine", *FATES])
        elif self.mood in FATES and self.chance.random() < 0.6:
            fate = self.mood
        if fate == "refuse" and len(self.lives) > 1:
            # A recreated topic accepts any number, also that after a batch it has refused, so
            # whether that batch was written cannot be determined.
            return "fine"
        return fate

    def trouble(self) -> None:
        """Change the kind of faults after a while; some kinds are a single event."""
        sim, chance = self.sim, self.chance
        self.mood = mood = "calm" if self.is_over else chance.choice(TROUBLES)
        sim.deaf, sim.stale, sim.has_ids = mood == "deaf", 0.5 * (mood == "stale"), mood != "no ids"
        sim.down = {chance.choice(NODES)} if mood == "down" else set()
        if mood in ("cut", "down"):
            sim.drop_all()
        if mood in ("moves", "leaderless"):
            for partition in range(self.partitions):
                if chance.random() < 0.6:
                    sim.move(TOPIC, partition, -1 if mood == "leaderless" else None)
        else:
            self.give_leaders()
        if mood == "forgetful":  # A snapshot of producers holds one batch of each.
            self.roll()
        if mood in ("restart", "forgetful"):
            sim.restart()
        if mood in ("more partitions", "limit", "delete records", "delete topic"):
            getattr(self, mood.replace(" ", "_"))()
        if not self.is_over:
            sim.call_later(chance.random() * 0.5, self.trouble)

    def give_leaders(self) -> None:
        for partition in range(self.partitions):
            if self.sim.leader(TOPIC, partition)[0] < 0:
                self.sim.move(TOPIC, partition, self.chance.choice(NODES))

    def roll(self) -> None:
        for partition in range(self.partitions):
            log = self.sim.broker.log(TOPIC, partition)
            if log is not None and log.log_end_offset > log._segments.active.base_offset:
                log.roll()
        # Otherwise the broker is killed before the snapshots are written.
        if self.chance.random() < 0.5:
            self.sim.settle()

    # -- changes of the topic -----------------------------------------------------------------

    def more_partitions(self) -> None:
        self.partitions += 1
        topic = CreatePartitionsTopic(name=TOPIC, count=self.partitions, assignments=None)
        self.sim.broker.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1_000), 3)

    def limit(self) -> None:
        """Change max.message.bytes, so that valid batches become too large or vice versa."""
        value = self.chance.choice(["300", "700", "1048576"])
        config = IncrementalAlterableConfig(
            name="max.message.bytes", config_operation=0, value=value
        )
        resource = IncrementalAlterConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configs=[config]
        )
        self.sim.broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def delete_records(self) -> None:
        self.lives[-1].read(self.site)
        partitions = [
            DeleteRecordsPartition(partition_index=partition, offset=-1)
            for partition in range(self.partitions)
        ]
        topic = DeleteRecordsTopic(name=TOPIC, partitions=partitions)
        self.sim.broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)

    def delete_topic(self) -> None:
        self.lives[-1].read(self.site)
        gone = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1_000)
        asked = self.sim.broker.begin(gone, 5)
        self.sim.settle()
        if not asked.is_done:  # The contents of the logs at the deletion are unknown.
            self.is_over = self.is_unclear = True
            return
        if asked.response().responses[0].error_code:  # The topic has not been recreated yet.
            return
        self.lives.append(Life())
        self.partitions = self.chance.choice([1, 3, 6])
        if self.chance.random() < 0.5:
            self.make_topic()
        else:
            self.sim.call_later(self.chance.random() * 0.3, self.make_topic)

    def make_topic(self) -> None:
        create_topic(self.sim.broker, TOPIC, self.partitions)

    # -- senders ------------------------------------------------------------------------------

    def value(self, sender: int) -> bytes:
        self.number += 1
        size = self.chance.choice([0, 10, 100, 100, 400, 1_500])
        filler = self.chance.randbytes(size) if self.chance.random() < 0.5 else b"x" * size
        return b"%d/%d " % (sender, self.number) + filler

    def record(self) -> dict[str, Any]:
        how = self.chance.choice(["partition", "partition", "key", "none", "headers"])
        if how == "partition":
            return {"partition": self.chance.randrange(self.partitions)}
        if how == "key":
            return {"key": b"%d" % self.chance.randrange(20)}
        return {"headers": {"h": b"v"}} if how == "headers" else {}

    async def sender(self, which: int, count: int) -> None:
        """Send records sequentially, as a thread of an application does."""
        for _ in range(count):
            if self.chance.random() < 0.05:
                self.send_invalid()
            await self.send_soon(which)
            if self.chance.random() < 0.3:
                await self.sim.sleep(self.chance.random() * 0.1)
        self.senders -= 1

    async def send_soon(self, which: int) -> None:
        value, begun_s = self.value(which), self.sim.now_s()
        try:
            handle = await self.site.core.send_soon(
                TOPIC, value, on_delivery=self.callback_for(value), **self.record()
            )
        except (BufferExhausted, ClosedError, Cancelled, KafkaError) as error:
            self.refused[type(error).__name__] += 1
            # It was not accepted, so it must have no outcome and must not be in a log.
            self.reported[value] = None, error, self.sim.now_s()
        else:
            self.took(value, handle)
        took_s = self.sim.now_s() - begun_s
        assert took_s <= _MAX_BLOCK_S + SLACK_S, f"send waited for {took_s:g} s"

    def took(self, value: bytes, handle: SendHandle) -> None:
        batch = handle._batch
        begun = (batch.order[0], batch.order[1] + handle._index)
        self.sent.append(Sent(value, handle, begun, self.sim.now_s()))

    def send_invalid(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"value": 5},
            {"key": "text"},
            {"partition": -1},
            {"partition": "1"},
            {"timestamp": -1},
            {"timestamp": 1.5},
            {"headers": [("a",)]},
            {"headers": 3},
            {"value": b"x" * (2 << 20)},
        ]
        error: Exception | None = None
        try:
            self.site.core.send(TOPIC, **self.chance.choice(wrong))
        except Exception as refusal:
            error = refusal
        assert error is not None, "an invalid record was accepted"
        assert str(error), "an error without a text"
        self.refused[type(error).__name__] += 1

    def callback_for(self, value: bytes) -> Any:
        """Return a callback, which may send, flush or fail."""
        whim = self.chance.choice(["", "", "", "", "send", "flush", "fail"])

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.outcomes[value] += 1
            self.reported[value] = metadata, error, self.sim.now_s()
            if whim == "fail":
                raise ValueError("an error of a callback")
            if whim == "flush":
                self.begin(self.site.core.flush())
            if whim == "send" and not self.is_over:
                self.send_now()

        return on_delivery

    def send_now(self) -> None:
        value = self.value(-1)
        core = self.site.core
        try:
            handle = (
                None
                if core.has_waiters
                else core.send(TOPIC, value, on_delivery=self.callback_for(value))
            )
        except (ClosedError, KafkaError) as error:
            self.refused[type(error).__name__] += 1
            return
        if handle is not None:
            self.took(value, handle)

    async def flusher(self) -> None:
        """Check that every record sent before a flush has an outcome after it."""
        while self.senders:
            await self.sim.sleep(self.chance.random() * 3)
            before = list(self.sent)
            await self.site.core.flush()
            assert all(sent.handle.done() for sent in before), "a flush returned too early"

    async def canceller(self) -> None:
        """Cancel sends while they wait, or a moment too late."""
        while self.senders:
            await self.sim.sleep(self.chance.random() * 0.5)
            task = self.begin(self.send_soon(-2))
            await self.sim.sleep(self.chance.random() * 0.05)
            task.cancel()

    # -- the run ------------------------------------------------------------------------------

    def run(self, count: int = 200) -> None:
        """Run the storm. Raises the error of a check, or AssertionError for a logged bug."""
        logger, bugs = logging.getLogger("plog.client"), Bugs()
        propagated, logger.propagate = logger.propagate, False
        logger.addHandler(bugs)
        try:
            self._run(count)
        finally:
            logger.removeHandler(bugs)
            logger.propagate = propagated
        assert not bugs.found, bugs.found[0]

    def _run(self, count: int) -> None:
        self.site.know()
        self.trouble()
        self.senders = self.chance.choice([1, 2, 5])
        each = count // self.senders
        tasks = [self.begin(self.sender(which, each)) for which in range(self.senders)]
        tasks += [self.begin(self.flusher()), self.begin(self.canceller())]
        if self.chance.random() < 0.3:
            self.sim.advance(self.chance.random() * 8_000)
            self.end_in_the_middle()
        self.sim.run_until(lambda: not self.senders)
        self.is_over = True
        self.sim.advance(1_000)
        self.trouble()
        self.site.flush()
        self.sim.advance(3_000)  # Requests of expired records have ended, too.
        assert all(task.done for task in tasks)

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        return self.sim.spawn(coroutine, "the storm")

    def end_in_the_middle(self) -> None:
        timeout_s = self.chance.choice([None, 0.0, 0.5])
        limit_s = self.delivery_s if timeout_s is None else timeout_s
        begun_s = self.sim.now_s()
        closings = [self.site.core.close(timeout_s)]
        if self.chance.random() < 0.5:
            closings.append(self.site.core.close(None))
        for task in [self.begin(closing) for closing in closings]:
            self.sim.run_until(lambda task=task: task.done)  # type: ignore[misc]
        took_s = self.sim.now_s() - begun_s
        assert took_s <= limit_s + SLACK_S, f"close({timeout_s}) took {took_s:g} s"
        assert all(sent.handle.done() for sent in self.sent), "closed without an outcome"


MODES: dict[str, tuple[dict[str, Any], dict[str, bool]]] = {
    "idempotent": ({}, {}),
    "one at a time": (
        {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
        {"is_idempotent": False, "is_ordered": False},
    ),
    "acks=1": ({"acks": "1"}, {"is_idempotent": False, "is_ordered": False}),
    "acks=0": ({"acks": "0"}, {"is_idempotent": False, "is_ordered": False}),
}


def weather(seed: int, mode: str = "idempotent") -> Storm:
    """Run the storm of a seed, check all promises, and return it."""
    options, promises = MODES[mode]
    storm = Storm(seed, **options)
    storm.run()
    storm.check(**promises)
    return storm


def main() -> None:
    """Run many storms from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--mode", choices=MODES, default="idempotent")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        weather(arguments.seed, arguments.mode)
        return
    failed, refused, acknowledged, errors = [], Counter[str](), 0, Counter[str]()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            storm = weather(seed, arguments.mode)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        refused += storm.refused
        outcomes = [sent.handle.error() for sent in storm.sent]
        acknowledged += outcomes.count(None)
        errors.update(type(x).__name__ for x in outcomes if x is not None)
    print(f"{len(failed)} of {arguments.seeds} failed: {failed[:20]}")
    print(f"{acknowledged} acknowledged; {dict(errors)}; refused immediately {dict(refused)}")


if __name__ == "__main__":
    main()
