"""ApiVersions (key 18): the APIs that this broker supports, and their versions.

Serves versions 0-4. The response is built from the table of handlers, so it cannot list an API
without a handler. Its only feature is metadata.version (features.py), which exists only with the
embedded store; Kafka's other features have level 0 until they are implemented.

A client sends this request before it knows the broker's versions. If the request's version is
unknown, the response is in version 0, with UNSUPPORTED_VERSION and only the versions of this API
(KIP-511). dispatch.py sends that response, because it cannot decode the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from plog.errors import ErrorCode, InvalidRequest, KafkaError
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.features import SUPPORTED

_FIRST_VERSION_WITH_SOFTWARE = 3  # KIP-511.
_CLIENT_ID_MAX_CHARACTERS = 256
# Kafka's pattern in ApiVersionsRequest (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


class Advertised(NamedTuple):
    """The inclusive range of one API's versions, for the response."""

    api_key: int
    min_version: int
    max_version: int


def handle_api_versions(
    request: ApiVersionsRequest,
    context: RequestContext,
    broker: Broker,
    advertised: Sequence[Advertised],
) -> ApiVersionsResponse:
    """Return all APIs and versions; record the client's id and software on its connection."""
    # Truncated, because a client id can have 32,767 bytes and is kept until the connection closes.
    context.connection.client_id = (context.client_id or "")[:_CLIENT_ID_MAX_CHARACTERS]
    if context.version >= _FIRST_VERSION_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            # As in Kafka's ApiVersionsRequest.isValid.
            raise InvalidRequest(f"invalid client software name {name!r} or version {version!r}")
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    response = ApiVersionsResponse(api_keys=[_api_version(api) for api in advertised])
    if broker.config.has_embedded_store:
        _add_features(response, broker)
    return response


def _add_features(response: ApiVersionsResponse, broker: Broker) -> None:
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=levels.first, max_version=levels.last)
        for name, levels in SUPPORTED.items()
    ]
    # The offset of the feature record in the metadata log.
    response.finalized_features_epoch = broker.embedded_store.features_epoch
    response.finalized_features = [
        # As in Kafka, a finalized feature has a single level.
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in broker.embedded_store.features.items()
    ]


def refuse_api_versions(
    request: ApiVersionsRequest, context: RequestContext, error: KafkaError
) -> ApiVersionsResponse:
    """Reject the request with `error`."""
    return ApiVersionsResponse(error_code=error.code)


def unknown_version_response(advertised: Sequence[Advertised]) -> ApiVersionsResponse:
    """Return the response to a request in an unknown version; it is encoded in version 0."""
    # The client needs only the range of ApiVersions itself: it repeats the request in one of these
    # versions.
    own = [_api_version(api) for api in advertised if api.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _api_version(api: Advertised) -> ApiVersion:
    return ApiVersion(api_key=api.api_key, min_version=api.min_version, max_version=api.max_version)
