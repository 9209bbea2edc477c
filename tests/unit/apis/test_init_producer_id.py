"""InitProducerId: ids for idempotent producers."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.helpers.sim.sim_broker import SimBroker


def asked(**fields: Any) -> InitProducerIdRequest:
    """Return a request without a transactional id, which is null and not empty."""
    return InitProducerIdRequest(**({"transactional_id": None} | fields))


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_its_own_id_in_every_version(version: int) -> None:
    broker = SimBroker().start()
    answers = [broker.ask(asked(), version) for _ in range(3)]
    assert [one.error_code for one in answers] == [0, 0, 0]
    assert len({one.producer_id for one in answers}) == 3
    assert {one.producer_epoch for one in answers} == {0}


def test_only_the_first_request_waits_for_the_disk() -> None:
    broker = SimBroker().start()
    first = broker.begin(asked(), 4)
    assert not first.is_done
    broker.settle()
    assert first.response().producer_id == 0
    assert broker.begin(asked(), 4).response().producer_id == 1


def test_ids_are_not_reused_after_a_crash() -> None:
    broker = SimBroker().start()
    given = [broker.ask(asked(), 4).producer_id for _ in range(3)]
    again = broker.restart(broker.files.crash(broker.ports.random))
    given += [again.ask(asked(), 4).producer_id for _ in range(3)]
    assert len(set(given)) == 6


def test_producer_with_an_old_id_gets_a_new_one() -> None:
    broker = SimBroker().start()
    old = broker.ask(asked(), 4).producer_id
    answer = broker.ask(asked(producer_id=old, producer_epoch=0), 4)
    assert (answer.error_code, answer.producer_id != old) == (0, True)


@pytest.mark.parametrize("epoch", [0, 32_766, 32_767])
def test_producer_with_the_last_epoch_gets_a_new_id(epoch: int) -> None:
    """F30: there is no epoch after 32767, but always another id."""
    broker = SimBroker().start()
    old = broker.ask(asked(), 4).producer_id
    answer = broker.ask(asked(producer_id=old, producer_epoch=epoch), 4)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != old


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (
            InitProducerIdRequest(transactional_id="x"),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (InitProducerIdRequest(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (asked(producer_id=5), ErrorCode.INVALID_REQUEST),
        (asked(producer_epoch=5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_request_is_refused(request_: InitProducerIdRequest, code: int) -> None:
    answer = SimBroker().start().ask(request_, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_no_id_is_returned_when_the_metadata_log_failed() -> None:
    broker = SimBroker().start()
    broker.files.fail_when(lambda op: op.name == "sync", errno.EIO)
    assert broker.ask(asked(), 4).error_code == ErrorCode.KAFKA_STORAGE_ERROR
