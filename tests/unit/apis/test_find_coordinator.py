"""There are no coordinators yet, and clients stop asking."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode, error_from_code
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.helpers.sim_broker import SimBroker

GROUP, TRANSACTION, SHARE = 0, 1, 2
CODES = {
    GROUP: ErrorCode.UNSUPPORTED_VERSION,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    SHARE: ErrorCode.INVALID_REQUEST,
}


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    return SimBroker().start()


@pytest.mark.parametrize("key_type", CODES)
def test_no_client_is_told_to_try_again(key_type: int) -> None:
    assert not error_from_code(CODES[key_type]).retriable


@pytest.mark.parametrize(
    ("version", "key_type"),
    [(0, GROUP), *((version, key_type) for version in range(1, 4) for key_type in CODES)],
)
def test_one_key(broker: SimBroker, version: int, key_type: int) -> None:
    answer = broker.ask(FindCoordinatorRequest(key="k", key_type=key_type), version)
    assert (answer.error_code, answer.node_id, answer.host) == (CODES[key_type], -1, "")
    assert bool(answer.error_message) == (version >= 1)


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize("key_type", CODES)
def test_several_keys(broker: SimBroker, version: int, key_type: int) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
    answer = broker.ask(request, version)
    told = [(one.key, one.error_code, one.node_id) for one in answer.coordinators]
    assert told == [("a", CODES[key_type], -1), ("b", CODES[key_type], -1)]
    assert all(one.error_message for one in answer.coordinators)
