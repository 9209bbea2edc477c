"""Loads through confluent-kafka, as an application uses it. Each mode returns its figures."""

from __future__ import annotations

import os
import sys
import threading
import time
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.meter import Meter, per_message, quantiles_ms
from tests.bench.options import Options, client_config
from tests.bench.payloads import payloads

_TIMEOUT_S = 60
_CHUNK = 1000
_NO_LIMIT_BYTES = 2_147_483_647


def create(options: Options) -> AdminClient:
    """Create the topic if it is missing."""
    settings = dict(pair.split("=", 1) for pair in options.topic_conf)
    admin = AdminClient({"bootstrap.servers": options.bootstrap, "log_level": 3})
    new = NewTopic(options.topic, options.partitions, options.replication, config=settings)
    future = admin.create_topics([new], operation_timeout=_TIMEOUT_S)[options.topic]
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
    return admin


def delete(options: Options) -> None:
    """Delete the topic."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    future = admin.delete_topics([options.topic], operation_timeout=_TIMEOUT_S)[options.topic]
    try:
        future.result()
    except KafkaException as error:  # The mode has already deleted it.
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
            raise


def remove(options: Options, meter: Meter) -> dict[str, Any]:
    """Delete the topic; no other load."""
    meter.start()
    delete(options)
    return meter.stop()


def produce(options: Options, meter: Meter) -> dict[str, Any]:
    """Produce `n` messages as fast as possible, to all partitions in turn."""
    create(options)
    producer = Producer(_producer_config(options))
    values = payloads(options.payload, options.size)
    chunks = [
        [{"value": values[i % len(values)]} for i in range(_CHUNK)]
        for _ in range(options.partitions)
    ]
    producer.list_topics(options.topic)
    if options.warmup:
        _send(producer, options, chunks, options.warmup)
    meter.start()
    _send(producer, options, chunks, options.n)
    return per_message(meter.stop(), options.n, options.size)


def _producer_config(options: Options) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "acks": options.acks,
        "compression_type": options.compression,
        "linger_ms": options.linger,
        "batch_size": options.batch_bytes,
        "queue_buffering_max_messages": 500_000,
        "queue_buffering_max_kbytes": 1_048_576,
        "enable_idempotence": options.idempotent,
        "max_in_flight": options.depth,
        "delivery_report_only_error": True,
    }
    if options.batch:  # Wait as long as it takes to fill each batch.
        linger_ms = max(options.linger, 1000) if options.batch > 1 else 0
        settings |= {
            "batch_num_messages": options.batch,
            "batch_size": _NO_LIMIT_BYTES,
            "linger_ms": linger_ms,
        }
    return client_config(options, **settings)


def _send(producer: Any, options: Options, chunks: list[list[Any]], count: int) -> None:
    failed: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error:
            failed.append(str(error))

    for number, done in enumerate(range(0, count, _CHUNK)):
        partition = number % options.partitions
        messages = chunks[partition][: min(_CHUNK, count - done)]
        while messages:
            producer.produce_batch(
                options.topic, messages, partition=partition, on_delivery=delivered
            )
            messages = [message for message in messages if message.pop("_error", None)]
            producer.poll(
                0.05 if messages else 0
            )  # Wait for space in the queue for the remaining messages.
        while len(producer) > 200_000:
            producer.poll(0.01)
    if producer.flush(120) or failed:
        sys.exit(f"clientbench: some messages were not acknowledged: {failed[:1]}")


def consume(options: Options, meter: Meter) -> dict[str, Any]:
    """Consume all messages of a topic, or `n` of them."""
    limits = {}
    if options.fetch_bytes:
        limits = {
            "fetch_max_bytes": options.fetch_bytes,
            "max_partition_fetch_bytes": options.fetch_bytes,
        }
    consumer = Consumer(
        client_config(
            options,
            group_id=f"bench-{os.getpid()}",
            enable_auto_commit=False,
            fetch_wait_max_ms=100,
            queued_min_messages=500_000,
            queued_max_messages_kbytes=262_144,
            # With the default of a second, the load would measure that wait.
            fetch_queue_backoff_ms=5,
            **limits,
        )
    )
    listed = consumer.list_topics(options.topic, _TIMEOUT_S).topics[options.topic]
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(options.topic, partition), 10)
        for partition in sorted(listed.partitions)
    }
    total = sum(high - low for low, high in ends.values())
    wanted = min(options.n, total) if options.n else total
    consumer.assign([TopicPartition(options.topic, p, low) for p, (low, _) in ends.items()])
    got = size = 0
    meter.start()
    while got < wanted:
        messages = consumer.consume(5000, 10)
        if not messages:
            sys.exit(f"clientbench: received only {got} of {wanted} messages")
        for message in messages:
            if message.error():
                sys.exit(f"clientbench: {message.error()}")
        got += len(messages)
        size += len(messages[0].value()) * len(messages)
    used = meter.stop()
    consumer.close()
    return per_message(used, got, round(size / got))


def latency(options: Options, meter: Meter) -> dict[str, Any]:
    """Send messages at an even rate; measure the time to acknowledgement and to consumption."""
    create(options)
    warmup = options.warmup or 200
    run = _LatencyRun(options, warmup + options.n)
    receiver = threading.Thread(target=run.receive)
    poller = threading.Thread(target=run.poll)
    receiver.start()
    poller.start()
    run.send(meter, warmup)
    receiver.join(15)
    used = meter.stop()
    run.stopped.set()
    poller.join()
    run.consumer.close()
    measured = range(warmup, run.total)
    return {
        **used,
        "n": options.n,
        "size": options.size,
        "rate": options.rate,
        "lost": run.total - len(run.seen),
        "end_to_end_ms": quantiles_ms(
            [(run.seen[i] - run.sent[i]) / 1000 for i in measured if i in run.seen]
        ),
        "produce_ack_ms": quantiles_ms(
            [(run.acked[i] - run.sent[i]) / 1000 for i in measured if i in run.acked]
        ),
    }


class _LatencyRun:
    """Numbered messages with the times of sending, acknowledgement and arrival, in monotonic ns."""

    def __init__(self, options: Options, total: int) -> None:
        self.total = total
        self.sent: dict[int, int] = {}
        self.acked: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.stopped = threading.Event()
        self._options = options
        self._producer = Producer(
            client_config(
                options,
                acks=options.acks,
                linger_ms=0,
                compression_type=options.compression,
                enable_idempotence=options.idempotent,
            )
        )
        self.consumer = Consumer(
            client_config(
                options,
                group_id=f"bench-{os.getpid()}",
                enable_auto_commit=False,
                fetch_wait_max_ms=500,
            )
        )
        _, high = self.consumer.get_watermark_offsets(TopicPartition(options.topic, 0), 10)
        self.consumer.assign([TopicPartition(options.topic, 0, high)])

    def receive(self) -> None:
        while len(self.seen) < self.total:
            message = self.consumer.poll(10)
            now = time.monotonic_ns()
            if message is None or message.error():
                return
            self.seen[int.from_bytes(message.value()[:8], "big")] = now

    def poll(self) -> None:
        while not self.stopped.is_set():
            self._producer.poll(0.2)

    def send(self, meter: Meter, warmup: int) -> None:
        padding = payloads(self._options.payload, max(self._options.size - 8, 0))
        due = time.monotonic()
        for i in range(self.total):
            if i == warmup:
                meter.start()
            due += 1 / self._options.rate
            time.sleep(max(0.0, due - time.monotonic()))
            self.sent[i] = time.monotonic_ns()
            value = i.to_bytes(8, "big") + padding[i % len(padding)]
            self._producer.produce(
                self._options.topic, value, partition=0, on_delivery=self._delivered(i)
            )
        self._producer.flush(10)

    def _delivered(self, i: int) -> Any:
        def note(error: Any, _: Any) -> None:
            if not error:
                self.acked[i] = time.monotonic_ns()

        return note


def topics(options: Options, meter: Meter) -> dict[str, Any]:
    """Create a topic with many partitions, write a message to each, list it, and delete it."""
    before_mb = meter.memory()["broker_rss_mb"]
    meter.start()
    marks = [time.monotonic()]
    admin = create(options)
    marks.append(time.monotonic())
    producer = Producer(client_config(options, acks=options.acks, linger_ms=0))
    errors: list[Any] = []
    for partition in range(options.partitions):
        producer.produce(
            options.topic,
            b"x" * options.size,
            partition=partition,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    producer.flush(120)
    marks.append(time.monotonic())
    listed = len(admin.list_topics(options.topic, 30).topics[options.topic].partitions)
    marks.append(time.monotonic())
    used = meter.stop()
    delete(options)
    marks.append(time.monotonic())
    took_s = [round(b - a, 4) for a, b in pairwise(marks)]
    names = ("create_s", "first_message_each_s", "metadata_s", "delete_s")
    return {
        **used,
        **dict(zip(names, took_s, strict=True)),
        "until_written_s": round(took_s[0] + took_s[1], 4),
        "partitions": listed,
        "errors": len(errors),
        "broker_rss_before_mb": before_mb,
    }
