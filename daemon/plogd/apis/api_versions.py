"""ApiVersions (key 18): what this broker serves, and so what a client may send.

Versions served 0-4. The answer is made from the table of handlers, so it cannot promise more than
there is. Of the features only metadata.version is told, see features.py: the levels of all others
are 0 until they are built. The epoch is the place in the metadata log of what set the levels.

A client does not know our versions when it asks for them, so a request of a version we lack is
answered too, in version 0, with error 35 and the versions of this one API (KIP-511). That answer is
made by dispatch.py, which cannot read the request.
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

_FIRST_VERSION_WITH_SOFTWARE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


class Advertised(NamedTuple):
    """The versions of one API, both ends included."""

    api_key: int
    min_version: int
    max_version: int


def handle_api_versions(
    request: ApiVersionsRequest,
    context: RequestContext,
    broker: Broker,
    advertised: Sequence[Advertised],
) -> ApiVersionsResponse:
    """Tell what is served; note what the client is."""
    if context.version >= _FIRST_VERSION_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            raise InvalidRequest(f"client software {name!r} {version!r} is not well formed")
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    return ApiVersionsResponse(
        api_keys=[_api_version(api) for api in advertised],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.first, max_version=levels.last)
            for name, levels in SUPPORTED.items()
        ],
        finalized_features_epoch=broker.store.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in broker.store.features.items()
        ],
    )


def refuse_api_versions(
    request: ApiVersionsRequest, context: RequestContext, error: KafkaError
) -> ApiVersionsResponse:
    """The answer to a request that is refused as a whole."""
    return ApiVersionsResponse(error_code=error.code)


def unknown_version_response(advertised: Sequence[Advertised]) -> ApiVersionsResponse:
    """The answer, to be sent in version 0, to a request of a version we do not know."""
    own = [_api_version(api) for api in advertised if api.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _api_version(api: Advertised) -> ApiVersion:
    return ApiVersion(api_key=api.api_key, min_version=api.min_version, max_version=api.max_version)
