"""Group members that send exactly the requests of a test, one at a time.

kafka-python encodes the bytes, so that an error in plog's own message tables cannot go unnoticed. A
request that has to wait for other members is sent first, and its response is received later.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.helpers.client.client_under_test import TIMEOUT_S

parser = pytest.importorskip("kafka.protocol.parser")
messages = pytest.importorskip("kafka.protocol.consumer.group")

_SESSION_MS = 30_000
_REBALANCE_MS = 60_000
_RECEIVE_BYTES = 1 << 16
PROTOCOL = "range"


class RawConnection:
    """One connection to a broker; responses arrive in the order of the requests."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._protocol = parser.KafkaProtocol(client_id="raw")

    def send(self, request: Any, version: int) -> None:
        """Send a request."""
        request.API_VERSION = version
        self._protocol.send_request(request)
        self._socket.sendall(self._protocol.send_bytes())

    def receive(self) -> Any:
        """Return the next response."""
        answers: list[Any] = []
        while not answers:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            answers = self._protocol.receive_bytes(data)
        [(_, answer)] = answers
        return answer

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class RawMember:
    """A passive member: it sends no heartbeats and does not rejoin.

    Its subscription and assignment are arbitrary bytes, because they are opaque to the broker.
    """

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self.connection = RawConnection(bootstrap_servers)
        self.group = group
        self.member_id = ""
        self.generation = -1

    def send_join(self) -> None:
        """Send JoinGroup; the response arrives when all members have joined."""
        protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"s")
        request = messages.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="raw",
            protocols=[protocol],
        )
        # Versions below 4 need no member id at first.
        self.connection.send(request, 3)

    def joined(self) -> Any:
        """Return the response to `send_join`."""
        answer = self.connection.receive()
        assert answer.error_code == 0
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        """Send SyncGroup and return the assignment; the leader sends all assignments."""
        self.send_sync(assignments)
        return self.connection.receive()

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        """Send SyncGroup; the response arrives after the leader has sent the assignments."""
        each = messages.SyncGroupRequest.SyncGroupRequestAssignment
        request = messages.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[each(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        self.connection.send(request, 2)

    def heartbeat(self) -> int:
        """Return the error code of a Heartbeat."""
        request = messages.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return int(self.connection.ask(request, 2).error_code)

    def commit(self, topic: str, offset: int, generation: int | None = None) -> int:
        """Return the error code of a commit for partition 0."""
        kind = messages.OffsetCommitRequest.OffsetCommitRequestTopic
        partition = kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = messages.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id,
            topics=[kind(name=topic, partitions=[partition])],
        )
        [answered] = self.connection.ask(request, 5).topics
        return int(answered.partitions[0].error_code)
