"""Choose the version of a request from the versions that a broker serves.

Source: KIP-35.
"""

from __future__ import annotations

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.schema import ApiMessage

Ranges = dict[int, tuple[int, int]]
"""The lowest and highest version that a broker serves, by API key."""

# Later versions of these requests identify topics only by id (KIP-516, KIP-848), which the client
# would have to look up first. It uses the last versions with topic names instead. Brokers know the
# ids.
_HIGHEST_BY_NAME = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}


def ranges_of(versions: ApiVersionsResponse) -> Ranges:
    """Return the version ranges in an ApiVersions response."""
    return {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}


def common_version(
    request: type[ApiMessage] | ApiMessage, ranges: Ranges, address: str, *, by_name: bool = True
) -> int:
    """Return the highest version of this request that both sides support.

    With `by_name`, the version identifies topics by name. If there is no common version, raises
    UnsupportedVersion with the broker's `address`.
    """
    key = ApiKey(request.api_key)
    # (0, -1) is an empty range: the broker does not serve the request at all.
    lowest, highest = ranges.get(key, (0, -1))
    version = min(highest, request.max_version)
    if by_name:
        version = min(version, _HIGHEST_BY_NAME.get(key, highest))
    if version < max(lowest, request.min_version):
        served = f"only versions {lowest} to {highest}" if highest >= 0 else "no version"
        raise UnsupportedVersion(
            f"cannot send {key.name}: the broker at {address} supports {served}; "
            f"this client supports versions {request.min_version} to {request.max_version}"
        )
    return version
