"""ChangeDeadline: requests without a timeout are answered while a write waits."""

from __future__ import annotations

from typing import Any

import pytest

from plog.enums import ConfigResourceType
from plog.errors import ErrorCode
from plog.wire.messages.acls import AclCreation, CreateAclsRequest
from plog.wire.messages.client_quotas import (
    AlterationEntry,
    AlterClientQuotasRequest,
    EntityData,
    OpData,
)
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plogd.apis.change_deadline import CHANGE_TIMEOUT_MS
from plogd.metadata.store import Change, Outcome
from plogd.ports import Later
from tests.helpers.sim.sim_broker import SimBroker, create_topic


class Unreachable:
    """Replaces the writes of a store, as if it were not reachable."""

    def __init__(self, broker: SimBroker) -> None:
        self.writes: list[Later[list[Outcome]]] = []
        store: Any = broker.broker.store
        store.write = store.write_atomic = self.write

    def write(self, changes: list[Change], term: int | None = None) -> Later[list[Outcome]]:
        self.writes.append(Later())
        return self.writes[-1]


def alter_topics(*names: str) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=ConfigResourceType.TOPIC,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="5")
                ],
            )
            for name in names
        ]
    )


ACLS = CreateAclsRequest(
    creations=[
        AclCreation(
            resource_type=2,
            resource_name="t",
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
    ]
)
QUOTAS = AlterClientQuotasRequest(
    entries=[
        AlterationEntry(
            entity=[EntityData(entity_type="user", entity_name="a")],
            ops=[OpData(key="producer_byte_rate", value=1.0)],
        )
    ]
)


@pytest.mark.parametrize(
    ("request_", "version", "field"),
    [(alter_topics("t"), 1, "responses"), (ACLS, 3, "results"), (QUOTAS, 1, "entries")],
    ids=lambda x: type(x).__name__,
)
def test_request_times_out_while_its_write_waits(request_: Any, version: int, field: str) -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    store = Unreachable(broker)
    asked = broker.begin(request_, version)
    broker.ports.advance(CHANGE_TIMEOUT_MS - 1)
    assert not asked.is_done
    broker.ports.advance(1)
    [result] = getattr(asked.response(), field)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "still being written after 25 s" in (result.error_message or "")
    assert len(store.writes) == 1


def test_changes_after_the_deadline_are_not_started() -> None:
    broker = SimBroker().start()
    names = [f"t{number}" for number in range(100)]
    for name in names:
        create_topic(broker, name)
    store = Unreachable(broker)
    asked = broker.begin(alter_topics(*names), 1)
    broker.ports.advance(CHANGE_TIMEOUT_MS)
    broker.settle()
    results = asked.response().responses
    assert {result.error_code for result in results} == {ErrorCode.REQUEST_TIMED_OUT}
    assert "send the rest again" in (results[-1].error_message or "")
    assert len(store.writes) < 100


def test_change_that_waits_for_another_one_is_dropped_at_the_deadline() -> None:
    """Otherwise, the changes of clients that try again would accumulate."""
    broker = SimBroker().start()
    store = Unreachable(broker)
    first, second = broker.begin(ACLS, 3), broker.begin(ACLS, 3)
    disconnected = broker.begin(ACLS, 3)
    disconnected.cancel()
    broker.ports.advance(CHANGE_TIMEOUT_MS)
    for asked in (first, second):
        [result] = asked.response().results
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(store.writes) == 1
    operations: Any = broker.broker.acls
    assert len(operations._operations._waiting) == 0
