"""Each API with one element repeated in each of its arrays, and with many missing ones in one.

The requests are those of the fuzz target hostile_counts, which counts the steps of each turn. Here
they go to a real process, and the test bounds the size of the responses.
"""

from __future__ import annotations

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plogd.apis.api_table import HANDLERS, Row
from tests.attack.conftest import Attack
from tests.attack.frames import response_size, small_batch
from tests.attack.target import Target
from tests.fault.peers import request_frame
from tests.fuzz.hostile_requests import Known, Shape, array_paths, hostile_request

_COUNT = 20_000
_MISSING_COUNT = 10_000
"""Fewer, because building so many different elements takes long."""
_TOPICS = [f"named-{number}" for number in range(20)]
_PER_BYTE = 16
_IN_ANY_CASE = 128 << 10
_KNOWN = Known(
    topics=_TOPICS,
    topic_ids=[bytes(15) + b"\1"],
    produce_topics=1,
    partitions=1,
    groups=["named-group"],
    members=["named-member"],
    users=["named-user"],
    config_names=["retention.ms", "cleanup.policy"],
    records=[small_batch()],
)
_WITH_ARRAYS = [row for row in HANDLERS if array_paths(row.request, row.last_version)]
_LIMITED = {ApiKey.CREATE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
"""Refused as a whole if they have more than 10,000 elements."""


@pytest.mark.parametrize("row", _WITH_ARRAYS, ids=lambda row: row.name)
def test_20000_elements_of(target: Target, attack: Attack, row: Row) -> None:
    _create_topics(target)
    count = 9_000 if row.api_key in _LIMITED else _COUNT
    version = row.last_version
    paths = array_paths(row.request, version)
    frames = {
        f"{'.'.join(path)}, {shape.name}": request_frame(
            hostile_request(
                row.request, version, path, count=number, shape=shape, seed=0, known=_KNOWN
            ),
            version,
        )
        for path, shape, number in [
            *((path, Shape.SAME, count) for path in paths),
            (paths[0], Shape.UNKNOWN, min(count, _MISSING_COUNT)),
        ]
    }
    with attack():
        for what, frame in frames.items():
            with target.connect() as peer:
                nbytes = response_size(peer, frame) or 0
            allowed = _PER_BYTE * len(frame) + _IN_ANY_CASE
            assert nbytes <= allowed, (
                f"{what}: a response of {nbytes:,} bytes to a request of {len(frame):,}"
                f" (allowed: {allowed:,})"
            )


def _create_topics(target: Target) -> None:
    """Create the topics that are missing; the broker refuses the others."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in _TOPICS]
    with target.connect() as peer:
        peer.request(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
