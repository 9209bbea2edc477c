"""The table of APIs, checked against Kafka 4.3's version ranges and the clients' needs."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.api_keys import ApiKey
from plog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from plogd.apis.api_table import CONTROL_HANDLERS, HANDLERS, Row, advertised_by, served_rows
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from tests.helpers.sim.sim_broker import SimBroker, connection

KAFKA_4_3 = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    35: (0, 5),  # Kafka serves 1 and above; kafka-python 2.3 sends only 0.
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    74: (0, 1),
    75: (0, 0),
}
# The requests of a controller, which Kafka 4.0 removed.
KAFKA_3_9 = {4: (5, 7), 5: (3, 4), 6: (7, 8), 7: (1, 3), 56: (2, 3)}
# Versions that all listed clients of an API share; without them some clients could not connect.
COMMON = {0: (3, 7), 1: (4, 11), 2: (1, 2), 3: (0, 4), 10: (0, 1), 18: (0, 2), 19: (2, 3)}
COMMON |= {20: (1, 1), 21: (0, 0), 23: (2, 2), 35: (0, 0), 37: (0, 0), 43: (1, 1), 45: (0, 0)}
COMMON |= {8: (2, 3), 9: (1, 3), 47: (0, 0)}
every_row = pytest.mark.parametrize("row", HANDLERS, ids=lambda row: row.name)


def test_exactly_the_listed_apis_are_served() -> None:
    served = {row.api_key: (row.first_version, row.last_version) for row in HANDLERS}
    assert served == KAFKA_4_3


@every_row
def test_codec_supports_every_version_served(row: Row) -> None:
    assert row.request.min_version <= row.first_version <= row.last_version
    assert row.last_version <= row.request.max_version


@every_row
def test_only_produce_advertises_more_than_it_serves(row: Row) -> None:
    first = 0 if row.name == "Produce" else row.first_version
    assert row.advertised == (row.api_key, first, row.last_version)


def test_versions_common_to_all_clients_are_served() -> None:
    for api_key, (first, last) in COMMON.items():
        served_first, served_last = KAFKA_4_3[api_key]
        assert served_first <= first <= last <= served_last


def test_apis_are_advertised_in_the_order_of_their_keys() -> None:
    advertised = advertised_by(HANDLERS, is_inter_broker=False)
    assert [api.api_key for api in advertised] == sorted(KAFKA_4_3)


def test_apis_of_kraft_require_the_embedded_store() -> None:
    embedded, other = (set(served_rows(is_embedded=each)) for each in (True, False))
    assert embedded == set(KAFKA_4_3)
    assert embedded - other == {ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES}


def test_requests_of_the_controller_require_a_cluster() -> None:
    embedded, other = (set(served_rows(is_embedded=each)) for each in (True, False))
    assert other - embedded == set(KAFKA_3_9)
    served = {row.api_key: (row.first_version, row.last_version) for row in CONTROL_HANDLERS}
    assert served == KAFKA_3_9
    for row in CONTROL_HANDLERS:
        assert row.only_between_brokers
        assert (row.request.min_version, row.request.max_version) == KAFKA_3_9[row.api_key]


class TestRequestsBetweenBrokers:
    """A request between brokers, which no row of the table has yet."""

    def make(self, **settings: Any) -> SimBroker:
        def handle(
            request: ControlledShutdownRequest, context: RequestContext, broker: Broker
        ) -> ControlledShutdownResponse:
            return ControlledShutdownResponse(
                remaining_partitions=[RemainingPartition(topic_name="t")]
            )

        row = Row(
            ApiKey.CONTROLLED_SHUTDOWN,
            1,
            3,
            handle,
            refuse_at_top_level(ControlledShutdownResponse),
            only_between_brokers=True,
        )
        return SimBroker(rows=(*HANDLERS, row), **settings).start()

    def outcome(self, broker: SimBroker, listener_name: str) -> tuple[int, int]:
        asked = ControlledShutdownRequest(broker_id=2)
        answer = broker.ask(asked, 3, connection=connection(listener_name))
        return answer.error_code, len(answer.remaining_partitions)

    def test_request_is_accepted_only_on_the_inter_broker_listener(self) -> None:
        refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0)
        broker = self.make(inter_broker_listener_name="inside")
        assert self.outcome(broker, "INSIDE") == (0, 1)
        assert self.outcome(broker, "PLAINTEXT") == refused
        by_protocol = self.make(security_inter_broker_protocol="SSL")
        assert self.outcome(by_protocol, "SSL") == (0, 1)
        assert self.outcome(by_protocol, "PLAINTEXT") == refused

    def test_request_is_advertised_only_on_the_inter_broker_listener(self) -> None:
        [*others, row] = [*HANDLERS, CONTROL_HANDLERS[0]]
        inside = advertised_by((*others, row), is_inter_broker=True)
        outside = advertised_by((*others, row), is_inter_broker=False)
        assert set(inside) == {*outside, row.advertised}
        assert len(outside) == len(HANDLERS)
