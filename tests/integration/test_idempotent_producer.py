"""Retries without duplicates: answers to Produce get lost after the broker has done the work.

The producer then sends the batch again; producer id and sequence number tell the broker that it
has it already. Without idempotence the same proxy makes duplicates: so this test can fail.
"""

from __future__ import annotations

from itertools import count

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.confluent import create_topic, produce, read
from tests.helpers.proxy import PRODUCE, Answer, Fault, FaultyAnswers, Proxy

MESSAGES = 3000
SENT = [{"value": b"%d" % i} for i in range(MESSAGES)]
# Small batches, so that many answers can get lost, and retries that do not wait.
MANY_BATCHES = {
    "batch.num.messages": 50,
    "max.in.flight": 5,
    "retry.backoff.ms": 1,
    "reconnect.backoff.ms": 1,
}
LOSSES = 15


def _values_after_lost_answers(broker: BrokerProcess, topic: str, idempotent: bool) -> list[bytes]:
    create_topic(broker.bootstrap_servers, topic)
    lose = FaultyAnswers(PRODUCE, Fault.LOST, LOSSES)
    with Proxy(broker.bootstrap_servers, lose) as proxy:
        config = {**MANY_BATCHES, "enable.idempotence": idempotent, "acks": "all"}
        errors = produce(proxy.bootstrap_servers, topic, SENT, config)
    assert set(errors) == {None}
    assert lose.done == LOSSES
    return [m.value() for m in read(broker.bootstrap_servers, topic)]


def test_lost_acknowledgements_make_no_duplicates_and_keep_the_order(
    broker: BrokerProcess, topic: str
) -> None:
    values = _values_after_lost_answers(broker, topic, idempotent=True)
    assert values == [message["value"] for message in SENT]


def test_without_idempotence_the_same_losses_do_make_duplicates(
    broker: BrokerProcess, topic: str
) -> None:
    values = _values_after_lost_answers(broker, topic, idempotent=False)
    assert set(values) == {message["value"] for message in SENT}
    assert len(values) > MESSAGES


def test_a_restarted_broker_still_knows_what_it_has(own_broker: BrokerProcess, topic: str) -> None:
    """The same, with a broker that is killed between the append and the retry."""
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
