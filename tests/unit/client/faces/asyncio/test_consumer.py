"""What the asyncio face adds to the engine: turns of the loop, and whose loop it is."""

from __future__ import annotations

import asyncio

import pytest

from plog.aio import Consumer
from plog.client.errors import IllegalState
from plog.types import TopicPartition

T0 = TopicPartition("t", 0)


def test_a_poll_that_does_not_wait_lets_others_have_their_turn() -> None:
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


def test_another_loop_is_refused_for_columns_as_well() -> None:
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
