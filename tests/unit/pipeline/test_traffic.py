"""The simulated traffic: sizes, order, time range and repeatability."""

from __future__ import annotations

import json
from collections import Counter

from examples.pipeline.traffic import CLICKS, LINES, MINUTE_MS, SERVERS, Message, traffic


def made(seed: int) -> list[Message]:
    return list(traffic(clicks=300, lines=100, start_ms=6_000_000, minutes=10, seed=seed))


def test_messages_are_in_the_order_of_their_times_and_in_the_range() -> None:
    times = [message.at_ms for message in made(1)]
    assert times == sorted(times)
    assert 6_000_000 <= times[0] < times[-1] < 6_000_000 + 10 * MINUTE_MS


def test_number_of_messages_is_exact_and_all_servers_send_some() -> None:
    assert Counter(message.topic for message in made(1)) == {CLICKS: 300, LINES: 100}
    assert {message.producer for message in made(1)} == set(SERVERS)


def test_seed_determines_all_messages() -> None:
    assert made(1) == made(1)
    assert made(1) != made(2)


def test_clicks_are_json_and_lines_are_text_with_their_time() -> None:
    by_topic = {message.topic: message for message in made(1)}
    assert json.loads(by_topic[CLICKS].value).keys() == {"user", "page", "ms"}
    assert by_topic[LINES].value.startswith(b"1970-01-01T0")
