"""Which version of a request to send to a broker that serves a range of them.

Source: KIP-35. From some version on, a few requests name a topic by its id alone (KIP-516,
KIP-848), which a client would have to look up first: they are sent in the last one with names.
"""

from __future__ import annotations

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.schema import ApiMessage

Ranges = dict[int, tuple[int, int]]
"""The lowest and highest version a broker serves, by API key."""

_HIGHEST_BY_NAME = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}


def ranges_of(versions: ApiVersionsResponse) -> Ranges:
    """What a broker says it serves."""
    return {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}


def common_version(request: type[ApiMessage] | ApiMessage, ranges: Ranges, address: str) -> int:
    """The highest version of this request that we and the broker at `address` speak.

    Raises UnsupportedVersion.
    """
    key = ApiKey(request.api_key)
    lowest, highest = ranges.get(key, (0, -1))
    version = min(highest, request.max_version, _HIGHEST_BY_NAME.get(key, highest))
    if version < max(lowest, request.min_version):
        served = f"only versions {lowest} to {highest} of it" if highest >= 0 else "none of it"
        raise UnsupportedVersion(
            f"{key.name}: the broker at {address} serves {served}, "
            f"this client speaks {request.min_version} to {request.max_version}"
        )
    return version
