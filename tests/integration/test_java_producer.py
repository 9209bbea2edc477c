"""An idempotent producer as users write it, run unchanged: java/SafeProducer.java.

It goes on sending while answers get lost and its broker dies: every record is there once.
"""

from __future__ import annotations

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.confluent import create_topic, read
from tests.helpers.java_process import JavaProcess
from tests.helpers.kafka_tools import KafkaTools
from tests.helpers.proxy import PRODUCE, Fault, FaultyAnswers, Proxy

PARTITIONS = 4
LOSSES = 10


def test_an_idempotent_producer_and_answers_that_get_lost(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    lose = FaultyAnswers(PRODUCE, Fault.LOST, LOSSES)
    with (
        Proxy(broker.bootstrap_servers, lose) as proxy,
        kafka_tools.start("programs.SafeProducer", proxy.bootstrap_servers, topic) as program,
    ):
        program.wait_until(
            lambda _: lose.done == LOSSES, "loss of every answer that shall get lost"
        )
        _stop_and_check(program, broker, topic)


def test_an_idempotent_producer_and_a_broker_that_is_killed_and_restarted(
    kafka_tools: KafkaTools, own_broker: BrokerProcess, topic: str
) -> None:
    create_topic(own_broker.bootstrap_servers, topic, PARTITIONS)
    with kafka_tools.start("programs.SafeProducer", own_broker.bootstrap_servers, topic) as program:
        for end in (own_broker.kill, own_broker.stop):
            acked = len(program.lines) + 200
            program.wait_until(lambda lines, n=acked: len(lines) >= n, "200 more records")
            end()
            own_broker.restart()
        _stop_and_check(program, own_broker, topic)


def _stop_and_check(program: JavaProcess, broker: BrokerProcess, topic: str) -> None:
    """Everything is there once, in order, at the offsets the callbacks were told."""
    program.tell("stop")
    assert program.wait() == 0
    *acks, result = program.lines
    assert result == f"sent {len(acks)} acked {len(acks)} failed 0"
    told = {(int(p), int(offset)): int(value) for _, value, p, offset in map(str.split, acks)}
    messages = read(broker.bootstrap_servers, topic, PARTITIONS)
    assert told == {(m.partition(), m.offset()): int(m.value()) for m in messages}
    assert sorted(told.values()) == list(range(len(acks)))
    for partition in range(PARTITIONS):
        values = [int(m.value()) for m in messages if m.partition() == partition]
        assert values == sorted(values)
