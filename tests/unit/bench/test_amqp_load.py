"""Counting confirms in the load generator for RabbitMQ."""

from __future__ import annotations

import struct

import pytest

from tests.bench.amqp_load import Confirms, delivery_bytes, publish_frames


class Wire:
    """A channel that feeds bytes to the load."""

    def __init__(self, *received: bytes) -> None:
        self._received = list(received)

    def receive(self) -> bytes:
        return self._received.pop(0)


def confirm(tag: int, *, multiple: bool = False, method_id: int = 80) -> bytes:
    payload = struct.pack(">HHQB", 60, method_id, tag, multiple)
    return struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"


def confirmed_after(*received: bytes) -> int:
    confirms = Confirms(Wire(*received))  # type: ignore[arg-type]
    for _ in received:
        confirms.receive()
    return confirms.all_up_to


def test_multiple_and_single_confirms_are_counted() -> None:
    assert confirmed_after(confirm(1) + confirm(2)) == 2
    assert confirmed_after(confirm(40, multiple=True), confirm(41)) == 41


def test_early_confirm_counts_once_all_earlier_messages_are_confirmed() -> None:
    assert confirmed_after(confirm(3)) == 0
    assert confirmed_after(confirm(3), confirm(2, multiple=True)) == 3


def test_confirm_may_arrive_in_two_parts() -> None:
    whole = confirm(1) + confirm(2)
    assert confirmed_after(whole[:30], whole[30:]) == 2


def test_rejected_message_ends_the_load() -> None:
    with pytest.raises(SystemExit, match="did not confirm"):
        confirmed_after(confirm(1, method_id=120))


def test_delivery_consists_of_three_frames() -> None:
    message = publish_frames("queue", b"x" * 200)
    assert delivery_bytes(message + b"more") == len(message)
    assert delivery_bytes(message[:-1]) is None
    assert delivery_bytes(b"") is None
