"""The asyncio face's consumer: it yields to the loop, and rejects calls from another loop."""

from __future__ import annotations

import asyncio

import pytest

from plog.aio import Consumer
from plog.client.errors import IllegalState
from plog.types import TopicPartition

T0 = TopicPartition("t", 0)


def test_poll_without_timeout_lets_other_tasks_run() -> None:
    async def story() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        async with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
            consumer.assign([T0])
            for _ in range(10):
                assert await consumer.poll() is None
        counting.cancel()
        return turns

    assert asyncio.run(story()) >= 10


def test_consume_arrow_rejects_another_loop() -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1")

    async def begin() -> None:
        consumer.assign([T0])

    first = asyncio.new_event_loop()
    try:
        first.run_until_complete(begin())
        with pytest.raises(IllegalState, match="another event loop"):
            asyncio.run(consumer.consume_arrow(1, 0.5))
        first.run_until_complete(consumer.close())
    finally:
        first.close()
