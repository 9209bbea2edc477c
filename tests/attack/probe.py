"""The client that must not notice an attack: it produces, connects and keeps its group membership.

`Probe` runs ``python -m tests.attack.probe`` as a separate process, so that an attack's work in the
test process does not delay it. The process sends requests sequentially: a produce with acks=1 to
its own topic, from time to time a first request on a new connection, and a heartbeat to its group.
It exchanges lines with the test: the first is the address of the broker, ``begin`` starts a
measurement, ``end`` returns the measurement as JSON.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Self

from plog.errors import ErrorCode
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from plogd.testing.running_broker import unique_name
from tests.fault.peers import Peer
from tests.helpers.eventually import eventually

PROBE_TOPIC = "probed"
"""Attacks may be aimed at this topic."""
_PAUSE_S = 0.005
_CONNECT_EVERY = 10
_HEARTBEAT_EVERY = 20
_MOST_ERRORS = 5
_SESSION_MS = 10_000


@dataclass(slots=True)
class Measurement:
    """What the probe measured between ``begin`` and ``end``."""

    produced: int = 0
    connected: int = 0
    longest_ms: float = 0.0
    longest: str = "nothing"
    """The request that waited for `longest_ms`: produce, connection or heartbeat."""
    longest_produce_ms: float = 0.0
    errors: list[str] = field(default_factory=list)

    def waited(self, what: str, since: float) -> None:
        """Record that a request sent at `since` has got its response."""
        waited_ms = (time.monotonic() - since) * 1000
        if waited_ms > self.longest_ms:
            self.longest_ms, self.longest = waited_ms, what
        if what == "produce":
            self.longest_produce_ms = max(self.longest_produce_ms, waited_ms)

    def failed(self, what: str, error: object) -> None:
        """Record a request that got an error or no response."""
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append(f"{what}: {error}")


class Probe:
    """The test's handle of the probing process, which starts at once and waits for `connect`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.attack.probe"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def connect(self, server: str) -> None:
        """Let the probe send its requests to the broker at ``host:port``."""
        assert self._command(server) == "connected", "the probe cannot reach the broker"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start a measurement."""
        assert self._command("begin") == "begun", "the probe has ended"

    def end(self) -> Measurement:
        """End the measurement, which includes a request in flight."""
        return Measurement(**json.loads(self._command("end")))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _command(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        return self._process.stdout.readline().strip()


# -- the process ----------------------------------------------------------------------------------


class _Prober:
    def __init__(self, server: str) -> None:
        self._server = server
        self._peer = Peer(server)
        self._member = Peer(server)
        self.measured = Measurement()
        self._round = 0
        # A new group each time: in an old one, the member of an earlier probe would have to expire.
        self._group = unique_name("probed-group")
        topic = CreatableTopic(name=PROBE_TOPIC, num_partitions=1, replication_factor=1)
        self._peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        self._joined = self._join()

    def _join(self) -> JoinGroupResponse:
        """Become the only member of the group, which owns all partitions."""
        eventually(self._has_coordinator, "a coordinator")
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = eventually(lambda: self._joined(request), "a loaded coordinator")
        assigned = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"everything")
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assigned],
        )
        self._member.request(sync, 1)
        return joined

    def _joined(self, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """Return the response, or None while the coordinator is loading, soon after a restart."""
        joined = self._member.request(request, 3)
        assert isinstance(joined, JoinGroupResponse)
        if joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return None
        assert joined.error_code == 0, f"JoinGroup: error code {joined.error_code}"
        return joined

    def _has_coordinator(self) -> bool:
        answer = self._member.request(FindCoordinatorRequest(key=self._group), 0)
        return answer.error_code == 0  # type: ignore[attr-defined,no-any-return]

    def run_once(self) -> None:
        """Send a produce, and sometimes the other requests."""
        self._round += 1
        self._try("produce", self._produce)
        if self._round % _CONNECT_EVERY == 0:
            self._try("connection", self._connect)
        if self._round % _HEARTBEAT_EVERY == 0:
            self._try("heartbeat", self._heartbeat)

    def check_membership(self) -> None:
        """Send a heartbeat, so that a lost membership counts in this measurement."""
        self._try("heartbeat", self._heartbeat)

    def _try(self, what: str, request: object) -> None:
        began = time.monotonic()
        try:
            request()  # type: ignore[operator]
        except (OSError, AssertionError) as error:
            self.measured.failed(what, error)
            self._peer.close()
            self._peer = Peer(self._server)
        self.measured.waited(what, began)

    def _produce(self) -> None:
        batch = build_batch([Record(timestamp=int(time.time() * 1000), value=b"probe")])
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=PROBE_TOPIC, partition_data=[data])
        request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic])
        response = self._peer.request(request, 7)
        assert isinstance(response, ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        assert code == 0, f"error code {code}"
        self.measured.produced += 1

    def _connect(self) -> None:
        with Peer(self._server) as peer:
            peer.ping()
        self.measured.connected += 1

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._joined.generation_id,
            member_id=self._joined.member_id,
        )
        answer = self._member.request(request, 3)
        assert isinstance(answer, HeartbeatResponse)
        assert answer.error_code == 0, f"the assignment was lost, error code {answer.error_code}"


def main() -> None:
    """Probe until standard input ends."""
    server = sys.stdin.readline().strip()
    if not server:
        return
    prober = _Prober(server)
    print("connected", flush=True)
    while True:
        if select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            command = sys.stdin.readline().strip()
            if not command:
                return
            prober.check_membership()
            if command == "begin":
                prober.measured = Measurement()
                print("begun", flush=True)
            else:
                print(json.dumps(asdict(prober.measured)), flush=True)
        prober.run_once()


if __name__ == "__main__":
    main()
