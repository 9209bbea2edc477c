"""An idempotent Java producer written as users write it: java/SafeProducer.java.

It keeps sending while responses get lost and its broker dies; every record must be present once.
"""

from __future__ import annotations

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic, read
from tests.helpers.programs.java_process import JavaProcess
from tests.helpers.programs.kafka_tools import KafkaTools
from tests.helpers.proxy import PRODUCE, Fault, FaultyAnswers, Proxy

PARTITIONS = 4
LOSSES = 10


def test_lost_responses_cause_no_duplicates(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    lost_responses = FaultyAnswers(PRODUCE, Fault.LOST, LOSSES)
    with (
        Proxy(broker.bootstrap_servers, lost_responses) as proxy,
        kafka_tools.start("programs.SafeProducer", proxy.bootstrap_servers, topic) as program,
    ):
        program.wait_until(
            lambda _: lost_responses.done == LOSSES, "the loss of all responses to be lost"
        )
        _stop_and_check(program, broker, topic)


def test_kill_and_restart_of_the_broker_cause_no_duplicates(
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
    """Check that every record is present once, in order, at the offset its callback received."""
    program.tell("stop")
    assert program.wait() == 0
    *acks, result = program.lines
    assert result == f"sent {len(acks)} acked {len(acks)} failed 0"
    acked_values = {
        (int(p), int(offset)): int(value) for _, value, p, offset in map(str.split, acks)
    }
    messages = read(broker.bootstrap_servers, topic, PARTITIONS)
    assert acked_values == {(m.partition(), m.offset()): int(m.value()) for m in messages}
    assert sorted(acked_values.values()) == list(range(len(acks)))
    for partition in range(PARTITIONS):
        values = [int(m.value()) for m in messages if m.partition() == partition]
        assert values == sorted(values)
