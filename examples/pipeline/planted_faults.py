"""A lost record and a repeated one, as badly configured producers and a bad network cause them.

The hooks of the test broker cut connections at the right moment (docs/testing.md).
"""

from __future__ import annotations

from examples.pipeline.producers import audited_producer
from examples.pipeline.traffic import Message
from plog import Producer
from plogd.testing.broker_process import BrokerProcess


def lose(broker: BrokerProcess, message: Message) -> None:
    """Send a message that never arrives: with acks=0, the producer does not notice it."""
    with (
        audited_producer(
            broker.bootstrap_servers, message.producer, acks="0", enable_idempotence=False
        ) as producer,
        broker.hooks.drop("Produce", topic=message.topic) as dropped,
    ):
        _send(producer, message)
        dropped.wait()


def repeat(broker: BrokerProcess, message: Message) -> None:
    """Send a message twice: its acknowledgment is lost, and the producer is not idempotent."""
    with (
        audited_producer(
            broker.bootstrap_servers, message.producer, acks="1", enable_idempotence=False
        ) as producer,
        broker.hooks.drop("Produce", topic=message.topic, after=True),
    ):
        _send(producer, message)


def _send(producer: Producer, message: Message) -> None:
    sent = producer.send(message.topic, message.value, message.key, timestamp=message.at_ms)
    sent.result(60)
