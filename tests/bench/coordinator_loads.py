"""The time that a group coordinator needs to load its offsets after many commits."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from plog import Admin
from plog.wire.header import decode_response_header
from plog.wire.messages import find_coordinator, offset_commit, offset_fetch
from plog.wire.schema import ApiMessage
from tests.bench.cleaner_checkpoint import wait_until_compacted
from tests.bench.load import StepFailed
from tests.bench.peers import NO_SYNC, Kafka, Missing, Peer, Plog
from tests.bench.raw_connection import Connection, request_frame
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from tests.bench.session import Session

_GROUP, _TOPIC, _OFFSETS_TOPIC = "bench", "committed", "__consumer_offsets"
_PARTITIONS = 1000
_COMMITS = 1000
"""Requests, each of which commits an offset for all partitions."""
_VERSION = 5
_SEGMENT_BYTES = 4 << 20
_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    # Smaller than the default, so that the commits fill more than the active segment.
    "offsets.topic.segment.bytes": str(_SEGMENT_BYTES),
    "offsets.topic.num.partitions": "1",
}
_TIMEOUT_S = 60.0

T = TypeVar("T", bound=ApiMessage)


def restart(session: Session) -> Generator[Round]:
    """Commit many offsets, wait until they are compacted, restart the broker and fetch them."""
    session.add("kafka-offsets", lambda path: Kafka(path, _SETTINGS))
    session.add("plog-offsets", lambda path: Plog(path, {**NO_SYNC, **_SETTINGS}))
    commits = 100 if session.quick else _COMMITS
    number = 0
    while True:
        number += 1
        round_ = {}
        for name in ("kafka", "plog"):
            folder = session.folder / f"offsets-{name}-{number}"
            try:
                peer = session.start_new(f"{name}-offsets", folder)
            except Missing:
                continue
            try:
                round_[name] = _restart(peer, commits)
            finally:
                peer.stop()
                shutil.rmtree(folder)
            session.results.say("coordinator-load", name, "", round_[name])
        yield round_


def _restart(peer: Peer, commits: int) -> Mapping[str, Any]:
    with Admin(bootstrap_servers=peer.bootstrap) as admin:
        admin.create_topic(_TOPIC, _PARTITIONS, 1)
    connection = Connection(peer.bootstrap)
    _wait_for_coordinator(connection)
    for offset in range(commits):
        _commit(connection, offset)
    # All except the active segment.
    least = commits * _PARTITIONS * (9 if commits == _COMMITS else 5) // 10
    wait_until_compacted(peer, _OFFSETS_TOPIC, partitions=1, least=least)
    peer.stop()
    log_bytes = sum(one.stat().st_size for one in peer.directory.rglob(f"{_OFFSETS_TOPIC}-0/*.log"))
    began = time.monotonic()
    peer.start()
    started = time.monotonic()
    _wait_for_offset(Connection(peer.bootstrap), commits - 1)
    return {
        "start_s": round(started - began, 3),
        "load_s": round(time.monotonic() - started, 3),
        "log_mb": round(log_bytes / 1e6, 1),
    }


def _wait_for_coordinator(connection: Connection) -> None:
    """Look for the coordinator until it is known; Kafka then creates the topic of the offsets."""
    request = find_coordinator.FindCoordinatorRequest(key=_GROUP)
    give_up = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < give_up:
        response = _call(connection, request, find_coordinator.FindCoordinatorResponse, 2)
        if not response.error_code:
            return
        time.sleep(0.05)
    raise StepFailed("the group has no coordinator")


def _commit(connection: Connection, offset: int) -> None:
    """Commit `offset` for all partitions; wait until the coordinator is available."""
    partitions = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=""
        )
        for number in range(_PARTITIONS)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name=_TOPIC, partitions=partitions)
    request = offset_commit.OffsetCommitRequest(group_id=_GROUP, topics=[topic])
    give_up = time.monotonic() + _TIMEOUT_S
    while True:
        response = _call(connection, request, offset_commit.OffsetCommitResponse)
        errors = {one.error_code for one in response.topics[0].partitions} - {0}
        if not errors:
            return
        if time.monotonic() > give_up:
            raise StepFailed(f"cannot commit offsets: errors {errors}")
        time.sleep(0.05)


def _wait_for_offset(connection: Connection, offset: int) -> None:
    """Wait until all partitions have `offset`."""
    request = offset_fetch.OffsetFetchRequest(group_id=_GROUP, topics=None)
    give_up = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < give_up:
        response = _call(connection, request, offset_fetch.OffsetFetchResponse)
        found = [one.committed_offset for topic in response.topics for one in topic.partitions]
        if found == [offset] * _PARTITIONS:
            return
        time.sleep(0.005)
    raise StepFailed(f"the offsets are not {offset} after the restart")


def _call(
    connection: Connection, request: ApiMessage, response_type: type[T], version: int = _VERSION
) -> T:
    connection.send(request_frame(request, version))
    end = connection.read()
    frame = bytes(connection.view[4:end])
    _, position = decode_response_header(frame, request.api_key, version)
    return response_type.decode(frame[position:], version)
