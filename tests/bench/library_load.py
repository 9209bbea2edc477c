"""The cost of Python client libraries to an application: CPU seconds per million records.

    python -m tests.bench.library_load --library plog --mode produce --bootstrap H:P --topic T

Each process runs one library, so that it does not pay for another's imports, and prints one JSON
line. Each library uses its own defaults for batching; the values are the same. `plog-interpreted`
is plog without its compiled codec. The CPU is that of the whole process, including C threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from tests.bench.payloads import payloads

Figures = dict[str, float]
_QUEUED_AT_MOST = 100_000
_TIMEOUT_S = 120


class _Watch:
    """CPU and wall time of this process since `start`."""

    def start(self) -> None:
        self._cpu_s, self._wall_s = time.process_time(), time.perf_counter()

    def stop(self, records: int) -> Figures:
        cpu_s = time.process_time() - self._cpu_s
        wall_s = time.perf_counter() - self._wall_s
        return {
            "client_cpu_s_per_mrecord": round(cpu_s / records * 1e6, 3),
            "records_s": round(records / wall_s),
        }


def _values(options: argparse.Namespace, count: int) -> Iterator[bytes]:
    some = payloads("log", options.size)
    return (some[number % len(some)] for number in range(count))


# -- produce ----------------------------------------------------------------------------------


def _produce_blocking(options: argparse.Namespace, producer: Any) -> Figures:
    """Run a producer whose `send` returns a future, that of plog or kafka-python."""
    send, topic = producer.send, options.topic
    for value in _values(options, options.warmup):
        send(topic, value)
    producer.flush()
    watch = _Watch()
    watch.start()
    for value in _values(options, options.n):
        send(topic, value)
    last = send(topic, b"last")
    producer.flush()
    last.result() if hasattr(last, "result") else last.get(_TIMEOUT_S)
    return watch.stop(options.n)


def produce_plog(options: argparse.Namespace) -> Figures:
    """plog's blocking API."""
    from plog import Producer

    with Producer(bootstrap_servers=options.bootstrap) as producer:
        return _produce_blocking(options, producer)


def produce_plog_audit(options: argparse.Namespace) -> Figures:
    """plog's blocking API with the audit of its records."""
    from plog import Producer

    with Producer(bootstrap_servers=options.bootstrap, plog_audit_enable=True) as producer:
        return _produce_blocking(options, producer)


def produce_kafka_python(options: argparse.Namespace) -> Figures:
    """kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=options.bootstrap)
    return _produce_blocking(options, producer)


def produce_confluent(options: argparse.Namespace) -> Figures:
    """confluent-kafka as documented: poll regularly, and wait when its queue is full."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": options.bootstrap})

    def send_all(count: int) -> None:
        for number, value in enumerate(_values(options, count)):
            while True:
                try:
                    producer.produce(options.topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush(_TIMEOUT_S)

    send_all(options.warmup)
    watch = _Watch()
    watch.start()
    send_all(options.n)
    return watch.stop(options.n)


async def _produce_aiokafka(options: argparse.Namespace) -> Figures:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap)
    await producer.start()

    async def send_all(count: int) -> None:
        for value in _values(options, count):
            await producer.send(options.topic, value)
        await producer.flush()

    await send_all(options.warmup)
    watch = _Watch()
    watch.start()
    await send_all(options.n)
    figures = watch.stop(options.n)
    await producer.stop()
    return figures


# -- consume ----------------------------------------------------------------------------------


def _consume_iterator(options: argparse.Namespace, records: Any) -> Figures:
    records = iter(records)
    for _ in range(options.warmup):
        next(records)
    watch = _Watch()
    watch.start()
    for _ in range(options.n):
        next(records)
    return watch.stop(options.n)


def consume_plog(options: argparse.Namespace) -> Figures:
    """plog's blocking API, record by record."""
    from plog import Consumer

    with Consumer(
        options.topic, bootstrap_servers=options.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        return _consume_iterator(options, consumer)


def consume_plog_arrow(options: argparse.Namespace) -> Figures:
    """plog's blocking API, as Arrow columns."""
    from plog import Consumer

    with Consumer(
        options.topic, bootstrap_servers=options.bootstrap, auto_offset_reset="earliest"
    ) as consumer:

        def take(count: int) -> int:
            taken = 0
            while taken < count:
                batch = consumer.consume_arrow(timeout_s=_TIMEOUT_S)
                taken += batch.num_rows
            return taken

        take(options.warmup)
        watch = _Watch()
        watch.start()
        return watch.stop(take(options.n))


def consume_kafka_python(options: argparse.Namespace) -> Figures:
    """kafka-python."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        options.topic, bootstrap_servers=options.bootstrap, auto_offset_reset="earliest"
    )
    return _consume_iterator(options, consumer)


def consume_confluent(options: argparse.Namespace) -> Figures:
    """confluent-kafka, in lists of 500 messages, its fastest way."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([options.topic])

    def take(count: int) -> int:
        taken = 0
        while taken < count:
            for message in consumer.consume(500, timeout=_TIMEOUT_S):
                message.value()
                taken += 1
        return taken

    take(options.warmup)
    watch = _Watch()
    watch.start()
    figures = watch.stop(take(options.n))
    consumer.close()
    return figures


async def _consume_aiokafka(options: argparse.Namespace) -> Figures:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        options.topic, bootstrap_servers=options.bootstrap, auto_offset_reset="earliest"
    )
    await consumer.start()
    for _ in range(options.warmup):
        await consumer.getone()
    watch = _Watch()
    watch.start()
    for _ in range(options.n):
        await consumer.getone()
    figures = watch.stop(options.n)
    await consumer.stop()
    return figures


# -- latency ----------------------------------------------------------------------------------


def _quantiles(latencies_s: list[float]) -> Figures:
    ordered = sorted(latencies_s)
    return {
        "p50_ms": round(statistics.median(ordered) * 1000, 3),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 3),
    }


async def _paced(
    options: argparse.Namespace,
    send: Callable[[bytes], Coroutine[Any, Any, object]],
    receive: Callable[[], Coroutine[Any, Any, bytes]],
) -> Figures:
    """Send records at a steady rate; measure the time of each from `send` to `receive`."""
    latencies_s: list[float] = []

    async def consume() -> None:
        while len(latencies_s) < options.n:
            sent = float((await receive()).split(b" ", 1)[0])
            latencies_s.append(time.perf_counter() - sent)

    consuming = asyncio.create_task(consume())
    began = time.perf_counter()
    filler = b"x" * (options.size - 20)
    for number in range(options.n):
        await asyncio.sleep(max(0.0, began + number / options.rate - time.perf_counter()))
        await send(b"%.9f %s" % (time.perf_counter(), filler))
    await asyncio.wait_for(consuming, _TIMEOUT_S)
    return _quantiles(latencies_s[options.n // 10 :])


async def _latency_plog(options: argparse.Namespace) -> Figures:
    from plog.aio import Consumer, Producer

    async with (
        Consumer(options.topic, bootstrap_servers=options.bootstrap) as consumer,
        Producer(bootstrap_servers=options.bootstrap, linger_ms=0) as producer,
    ):
        await (await producer.send(options.topic, b"0 first"))
        while not consumer.assignment:
            await consumer.poll(0.1)
        for partition in consumer.assignment:
            await consumer.position(partition)

        async def receive() -> bytes:
            while (record := await consumer.poll(timeout_s=_TIMEOUT_S)) is None:
                pass
            return bytes(record.value)

        return await _paced(options, lambda value: producer.send(options.topic, value), receive)


async def _latency_aiokafka(options: argparse.Namespace) -> Figures:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    consumer = AIOKafkaConsumer(options.topic, bootstrap_servers=options.bootstrap)
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, linger_ms=0, acks="all")
    await producer.start()
    await producer.send_and_wait(options.topic, b"0 first")
    await consumer.start()
    await consumer.seek_to_end()
    await consumer.position(next(iter(consumer.assignment())))

    async def receive() -> bytes:
        return bytes((await consumer.getone()).value or b"")

    figures = await _paced(options, lambda value: producer.send(options.topic, value), receive)
    await producer.stop()
    await consumer.stop()
    return figures


def _run(function: Callable[[argparse.Namespace], Coroutine[Any, Any, Figures]]) -> Any:
    return lambda options: asyncio.run(function(options))


MODES: dict[str, dict[str, Callable[[argparse.Namespace], Figures]]] = {
    "produce": {
        "plog": produce_plog,
        "plog-interpreted": produce_plog,
        "plog-audit": produce_plog_audit,
        "kafka-python": produce_kafka_python,
        "aiokafka": _run(_produce_aiokafka),
        "confluent": produce_confluent,
    },
    "consume": {
        "plog": consume_plog,
        "plog-interpreted": consume_plog,
        "plog-arrow": consume_plog_arrow,
        "kafka-python": consume_kafka_python,
        "aiokafka": _run(_consume_aiokafka),
        "confluent": consume_confluent,
    },
    "latency": {"plog": _run(_latency_plog), "aiokafka": _run(_latency_aiokafka)},
}


def main(argv: list[str] | None = None) -> int:
    """Run one library once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--warmup", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--rate", type=float, default=200, help="latency: records per second")
    options = parser.parse_args(argv)
    if options.library not in MODES[options.mode]:
        parser.error(f"{options.mode}: {', '.join(MODES[options.mode])}")
    if options.library == "plog-interpreted":
        os.environ["PLOG_INTERPRETED"] = (
            "1"  # plog has not been imported yet, so the variable takes effect.
        )
    figures = MODES[options.mode][options.library](options)
    print(json.dumps({"library": options.library, "mode": options.mode, **figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
