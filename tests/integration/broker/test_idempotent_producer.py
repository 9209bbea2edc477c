"""Retries without duplicates when Produce responses are lost after the append.

The producer resends the batch; its producer id and sequence number show the broker that the batch
is already in the log. Without idempotence the same proxy causes duplicates: the tests can fail.
"""

from __future__ import annotations

from itertools import count

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic, produce, read
from tests.helpers.proxy import PRODUCE, Answer, Fault, FaultyAnswers, Proxy

MESSAGES = 3000
SENT = [{"value": b"%d" % i} for i in range(MESSAGES)]
# Small batches, so that many responses can get lost, and retries without delay.
MANY_BATCHES = {
    "batch.num.messages": 50,
    "max.in.flight": 5,
    "retry.backoff.ms": 1,
    "reconnect.backoff.ms": 1,
}
LOSSES = 15


def _values_after_lost_responses(
    broker: BrokerProcess, topic: str, idempotent: bool
) -> list[bytes]:
    create_topic(broker.bootstrap_servers, topic)
    lost_responses = FaultyAnswers(PRODUCE, Fault.LOST, LOSSES)
    with Proxy(broker.bootstrap_servers, lost_responses) as proxy:
        config = {**MANY_BATCHES, "enable.idempotence": idempotent, "acks": "all"}
        errors = produce(proxy.bootstrap_servers, topic, SENT, config)
    assert set(errors) == {None}
    assert lost_responses.done == LOSSES
    return [m.value() for m in read(broker.bootstrap_servers, topic)]


def test_lost_acknowledgements_cause_neither_duplicates_nor_reordering(
    broker: BrokerProcess, topic: str
) -> None:
    values = _values_after_lost_responses(broker, topic, idempotent=True)
    assert values == [message["value"] for message in SENT]


def test_lost_acknowledgements_cause_duplicates_without_idempotence(
    broker: BrokerProcess, topic: str
) -> None:
    values = _values_after_lost_responses(broker, topic, idempotent=False)
    assert set(values) == {message["value"] for message in SENT}
    assert len(values) > MESSAGES


def test_restarted_broker_recognizes_resent_batches(own_broker: BrokerProcess, topic: str) -> None:
    """The broker is killed between the append and the retry."""
    create_topic(own_broker.bootstrap_servers, topic)
    kill_at = {10, 30}
    answers = count(1)

    def kill(answer: Answer) -> bytes | None:
        if answer.api_key == PRODUCE and next(answers) in kill_at:
            own_broker.kill()
            own_broker.restart()
            return None
        return answer.payload

    with Proxy(own_broker.bootstrap_servers, kill) as proxy:
        config = {**MANY_BATCHES, "enable.idempotence": True}
        assert set(produce(proxy.bootstrap_servers, topic, SENT, config)) == {None}
    values = [m.value() for m in read(own_broker.bootstrap_servers, topic)]
    assert values == [message["value"] for message in SENT]
