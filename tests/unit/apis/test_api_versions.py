"""ApiVersions: the APIs, versions and features in its response."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest
from plogd.apis.api_table import HANDLERS
from tests.helpers.sim.sim_broker import Asked, SimBroker


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    return SimBroker().start()


@pytest.mark.parametrize("version", range(5))
def test_response_lists_all_apis_in_every_version(broker: SimBroker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = broker.ask(request, version)
    assert answer.error_code == 0
    actual = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
    assert actual == [tuple(row.advertised) for row in HANDLERS]


@pytest.mark.parametrize("version", [3, 4])
def test_response_has_metadata_version_and_no_other_feature(
    broker: SimBroker, version: int
) -> None:
    """A client that sees transaction.version or group.version would rely on it."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = broker.ask(request, version)
    [supported], [finalized] = answer.supported_features, answer.finalized_features
    assert (supported.name, supported.min_version, supported.max_version) == (
        "metadata.version",
        11,
        11,
    )
    assert finalized.name == "metadata.version"
    assert (finalized.min_version_level, finalized.max_version_level) == (11, 11)
    assert answer.finalized_features_epoch == 0, "the record stands first in the metadata log"
    assert not answer.zk_migration_ready


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_is_answered_in_version_0(broker: SimBroker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    frame = bytearray(encode_request(RequestHeader(18, 3, 77, "new"), request)[4:])
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    dispatched = broker.dispatch_frame(bytes(frame))
    asked = Asked(broker, RequestHeader(18, 0, 77), dispatched.result)
    answer = asked.response()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == [ApiVersion(api_key=18, min_version=0, max_version=4)]


def test_client_software_is_recorded(broker: SimBroker) -> None:
    request = ApiVersionsRequest(
        client_software_name="librdkafka", client_software_version="2.15.0"
    )
    broker.ask(request, 3)
    assert broker.connection.client_software_name == "librdkafka"
    assert broker.connection.client_software_version == "2.15.0"


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "ü"])
def test_invalid_client_software_is_refused(broker: SimBroker, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    answer = broker.ask(request, 3)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
