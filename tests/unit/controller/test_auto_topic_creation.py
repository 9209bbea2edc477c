"""Automatic topic creation: sharing between requests, rate limit and retries."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode, KafkaStorageError
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plogd.ports import failed
from tests.helpers.sim.sim_broker import Asked, SimBroker

LIMIT = 10


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker(plog_auto_create_topics_max_per_second=LIMIT).start()


def named(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def codes(asked: Asked) -> list[int]:
    return [topic.error_code for topic in asked.response().topics]


def ask(broker: SimBroker, *names: str) -> list[int]:
    asked = broker.begin(named(*names), 9)
    broker.settle()
    return codes(asked)


def test_topics_beyond_the_rate_are_created_on_retry(
    broker: SimBroker,
) -> None:
    names = [f"t{number}" for number in range(25)]
    created = [0] * LIMIT
    postponed = [ErrorCode.LEADER_NOT_AVAILABLE] * LIMIT
    assert ask(broker, *names) == created + postponed + postponed[:5]
    assert ask(broker, *names) == created + postponed + postponed[:5]
    broker.ports.advance(500)
    assert ask(broker, *names) == created + created[:5] + postponed
    broker.ports.advance(60_000)  # No more than one second's allowance accumulates.
    assert ask(broker, *names) == created + created + created[:5]
    assert len(list(broker.broker.cache.topics())) == 25
    assert len([line for line in broker.reports if "max.per.second=10 is reached" in line]) == 1


def test_rate_is_shared_by_all_requests(broker: SimBroker) -> None:
    assert ask(broker, *(f"a{number}" for number in range(6))) == [0] * 6
    assert (
        ask(broker, *(f"b{number}" for number in range(6)))
        == [0] * 4 + [ErrorCode.LEADER_NOT_AVAILABLE] * 2
    )


def test_requests_that_name_the_same_topic_share_its_creation(broker: SimBroker) -> None:
    asked = [broker.begin(named("same"), 9) for _ in range(3 * LIMIT)]
    broker.settle()
    assert [codes(one) for one in asked] == [[0]] * (3 * LIMIT)


def test_disconnecting_client_does_not_cancel_the_creation_for_others(broker: SimBroker) -> None:
    first, second = (broker.begin(named("same"), 9) for _ in range(2))
    first.cancel()
    broker.settle()
    assert codes(second) == [0]


def test_disconnected_and_timed_out_clients_are_removed_during_the_creation(
    broker: SimBroker,
) -> None:
    creation = broker.broker.auto_topic_creation
    waiting = [broker.begin(named("same"), 9) for _ in range(20)]
    for one in waiting[:10]:
        one.cancel()
    assert len(creation._waiters["same"]) == 10
    broker.ports.timers.advance(6_000)  # The jobs that write the topic do not run.
    assert [codes(one) for one in waiting[10:]] == [[ErrorCode.LEADER_NOT_AVAILABLE]] * 10
    assert len(creation._waiters["same"]) == 0
    broker.settle()
    assert creation._waiters == {}
    assert ask(broker, "same") == [0]


def test_failed_creation_fails_all_clients_and_can_be_retried(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        error = KafkaStorageError("the disk failed")
        patch.setattr(broker.broker.controller, "create_topic", lambda new: failed(error))
        assert ask(broker, "same") == ask(broker, "same") == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert ask(broker, "same") == [0]


def test_invalid_names_do_not_use_up_the_rate(broker: SimBroker) -> None:
    invalid = [f"not valid {number}" for number in range(50)]
    assert set(ask(broker, *invalid)) == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert ask(broker, *(f"t{number}" for number in range(LIMIT))) == [0] * LIMIT
