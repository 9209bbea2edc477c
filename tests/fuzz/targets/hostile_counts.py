"""Valid requests with hostile counts, repetitions and sizes: no turn exceeds its budget.

Each input chooses an API, a version, one array of its request, how many elements that array gets
and how they relate to each other (tests/fuzz/hostile_requests.py). The request goes to a whole
broker in memory (tests/fuzz/hostile_world.py). The target fails if one turn of the reactor takes
more interpreted steps than its budget, if the response or the memory is too large for the request,
or if the broker reports a bug. Steps are counted, so a failure is the same on every machine.

    python -m tests.fuzz.turn_costs [--all-versions] [API ...]

prints the costliest turn of each request.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import HANDLERS, Row
from plogd.apis.dispatch import CloseConnection
from plogd.apis.sliced_requests import MAX_CHANGES
from plogd.log.segment.file_records import FileRegion
from tests.fuzz.hostile_requests import (
    ArrayPath,
    Known,
    Shape,
    array_paths,
    hostile_request,
)
from tests.fuzz.hostile_world import WIDE, build_world, is_worn
from tests.fuzz.target import Target
from tests.helpers.sim.sim_broker import Asked, produce_request
from tests.helpers.turn_budget import MeteredBroker, TurnBudget, countable_codecs

BUDGET = TurnBudget()
_LARGE_RESPONSES = {"DescribeConfigs", "DescribeProducers", "Fetch", "Metadata", "OffsetFetch"}
"""APIs with long responses: ./test checks their memory, too."""
_OTHER_ELEMENTS = 20
"""The number of elements of the other arrays in a request, and a few more."""
_COUNTS = (20_000, MAX_CHANGES - _OTHER_ELEMENTS, 1_000, 50)
"""Elements of the large array. At five lines each, 20,000 reach the budget of a turn."""
_LIMITED = {
    "AlterClientQuotas",
    "AlterConfigs",
    "AlterUserScramCredentials",
    "CreateAcls",
    "CreateTopics",
    "DeleteAcls",
    "IncrementalAlterConfigs",
}
"""APIs that refuse more than MAX_CHANGES elements: they are also tested just below that."""
_CREATED = ("CreateTopics", "CreatePartitions")
_CREATED_COUNT = 1_000
"""Enough for several slices; each takes a millisecond on the simulated disk."""
_RESPONSE_PER_BYTE = 16
_RESPONSE_BYTES = 128 << 10
_RESPONSE_BYTES_OF_ALL = 8 << 20
"""The size of a response that describes everything on the broker once."""
_MEMORY_BYTES = 64 << 20
_INPUTS_PER_WORLD = 400
WAITING_FETCH, FETCH_WITH_SESSION = 9, 19
"""Seeds with which a Fetch waits for more bytes than the log has, or opens a session."""
_WAIT_MS = 500
_WIDE_PARTITIONS = 2_000
"""At 50 lines each, they reach the budget of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A hostile request and how it is measured."""

    row: Row
    version: int
    path: ArrayPath
    shape: Shape
    count: int
    seed: int
    memory: bool = False
    wide: bool = False
    """Not a large array, but a topic with many partitions, which a small request can create."""

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """Return the case of an input, or None if the input is too short."""
        if len(data) < 7:
            return None
        row = HANDLERS[data[0] % len(HANDLERS)]
        version = row.first_version + data[1] % (row.last_version - row.first_version + 1)
        paths: list[ArrayPath] = array_paths(row.request, version) or [()]
        return cls(
            row=row,
            version=version,
            path=paths[data[2] % len(paths)],
            shape=Shape(data[3] % len(Shape)),
            count=_COUNTS[data[4] % len(_COUNTS)],
            seed=data[5],
            memory=bool(data[6] & 1),
            wide=row.name == "CreateTopics" and bool(data[6] & 2),
        )

    def __str__(self) -> str:
        if self.wide:
            return f"{self.row.name} v{self.version}, a topic with {_WIDE_PARTITIONS:,} partitions"
        array = ".".join(self.path) or "no array"
        elements = f"{self.count:,} elements, {self.shape.name}, seed {self.seed}"
        memory = ", memory" if self.memory else ""
        return f"{self.row.name} v{self.version}, {array}: {elements}{memory}"

    def request(self, known: Known, max_elements: int) -> ApiMessage:
        """Return the request, with as many elements as the broker accepts."""
        most = _CREATED_COUNT if self.row.name in _CREATED else max_elements - _OTHER_ELEMENTS
        count = min(self.count, most)
        return hostile_request(
            self.row.request,
            self.version,
            self.path,
            count=count,
            shape=self.shape,
            seed=self.seed,
            known=known,
        )


class _World:
    """The broker and the things on it, rebuilt from time to time."""

    def __init__(self) -> None:
        self._inputs = 0
        self._built: tuple[MeteredBroker, Known] | None = None

    def get(self) -> tuple[MeteredBroker, Known]:
        """Return a broker on which all known things exist."""
        self._inputs += 1
        if self._built is None or self._inputs > _INPUTS_PER_WORLD or is_worn(*self._built):
            self._inputs = 0
            self._built = build_world(BUDGET)
        return self._built

    def forget(self) -> None:
        """Build a new broker for the next input."""
        self._built = None


WORLD = _World()


def fuzz(data: bytes) -> None:
    """Send the request of the input and its follow-up requests."""
    case = Case.parse(data)
    if case is not None:
        try:
            run(case)
        except AssertionError as error:
            WORLD.forget()
            raise AssertionError(f"{case}: {error}") from error


def run(case: Case) -> MeteredBroker:
    """Run a case; return its broker. Raises AssertionError with the exceeded bound."""
    broker, known = WORLD.get()
    request = case.request(known, broker.config.plog_request_max_elements)
    if case.wide:
        broker.meter.reset()
        _check_wide_topic(broker)
        broker.meter.check()
    elif case.memory:
        _check_memory(broker, case, request)
    else:
        broker.meter.reset()
        with countable_codecs(broker.meter):
            _send(broker, case, request)
        broker.meter.check()
    bugs, broker.bugs[:] = list(broker.bugs), []
    if bugs:
        raise AssertionError(f"a bug was reported: {bugs[0][0]}: {bugs[0][1]!r}") from bugs[0][1]
    return broker


def _check_memory(broker: MeteredBroker, case: Case, request: ApiMessage) -> None:
    tracemalloc.start()
    try:
        with broker.meter.off():
            _send(broker, case, request)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The frame and a copy of it, and its records on the simulated disk.
    allowed = _MEMORY_BYTES + 4 * len(request.encode(case.version))
    assert peak <= allowed, f"{peak:,} bytes of memory (allowed: {allowed:,})"


def _send(broker: MeteredBroker, case: Case, request: ApiMessage) -> None:
    size = len(request.encode(case.version))
    try:
        sent = broker.begin(request, case.version)
    except CloseConnection:
        broker.settle()
        return
    _settle(broker)
    if not sent.is_done:
        # A waiting request must not make those of other clients expensive, nor its cancellation.
        _produce(broker)
        with broker.meter.turn("the client disconnects"):
            sent.cancel()
        _settle(broker)
        return
    with suppress(CloseConnection):
        _check_response(sent, size, case)
        if isinstance(request, FetchRequest) and request.session_epoch == 0 and case.version >= 7:
            _fetch_again(broker, case, sent)
    _produce(broker)


def _check_wide_topic(broker: MeteredBroker) -> None:
    """Create a wide topic, double its partitions, change a setting, and delete it."""
    name = "very-wide"
    topic = CreatableTopic(name=name, num_partitions=_WIDE_PARTITIONS, replication_factor=1)
    created = _request(broker, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 3)
    more = CreatePartitionsTopic(name=name, count=2 * _WIDE_PARTITIONS, assignments=None)
    extended = _request(broker, CreatePartitionsRequest(topics=[more], timeout_ms=60_000), 3)
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = IncrementalAlterConfigsResource(
        resource_type=2, resource_name=name, configs=[config]
    )
    changed = _request(broker, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    deleted = _request(broker, DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)
    results = [*created.topics, *extended.results, *changed.responses, *deleted.responses]
    assert [one.error_code for one in results] == [0] * 4


def _request(broker: MeteredBroker, request: ApiMessage, version: int) -> Any:
    sent = broker.begin(request, version)
    _settle(broker)
    return sent.response()


def _settle(broker: MeteredBroker) -> None:
    broker.settle()
    broker.ports.advance(_WAIT_MS)


def _produce(broker: MeteredBroker) -> None:
    broker.begin(produce_request(WIDE, b"from another client"), 9)
    broker.settle()


def _check_response(sent: Asked, request_bytes: int, case: Case) -> None:
    parts = sent.parts() or []
    response_bytes = sum(x.nbytes if isinstance(x, FileRegion) else len(x) for x in parts)
    allowed = _RESPONSE_PER_BYTE * request_bytes + _RESPONSE_BYTES
    if case.shape in (Shape.KNOWN, Shape.MIXED, Shape.ABSENT) or case.row.name == "Fetch":
        allowed += _RESPONSE_BYTES_OF_ALL
    if not response_bytes <= allowed:
        sent.response()  # Closes the files in the response.
        raise AssertionError(
            f"a response of {response_bytes:,} bytes to a request of {request_bytes:,}"
            f" (allowed: {allowed:,})"
        )


def _fetch_again(broker: MeteredBroker, case: Case, sent: Asked) -> None:
    """Add missing partitions to the new session; then fetch it without naming any."""
    session_id = sent.response().session_id
    if not session_id:
        return
    for epoch, count in ((1, case.count), (2, case.count), (3, 0)):
        first = epoch * 1_000_000
        topic = FetchTopic(
            topic=WIDE,
            partitions=[FetchPartition(partition=first + number) for number in range(count)],
        )
        request = FetchRequest(
            session_id=session_id, session_epoch=epoch, topics=[topic] if count else []
        )
        with suppress(CloseConnection):
            broker.begin(request, min(case.version, 12))
        _settle(broker)


def seeds(*, thorough: bool = False) -> Iterator[bytes]:
    """Yield inputs for each array of each API: repeated, different and longest names.

    ./test uses the last version of each API; `thorough` yields all versions in all shapes.
    """
    for index, row in enumerate(HANDLERS):
        last = row.last_version - row.first_version
        for version in range(last + 1) if thorough else (last,):
            paths = array_paths(row.request, row.first_version + version) or [()]
            for number in range(len(paths)):
                different = (Shape.UNKNOWN, Shape.KNOWN, Shape.MIXED)[(index + number) % 3]
                shapes = Shape if thorough else (Shape.SAME, different, Shape.LONGEST)
                size = 1 if row.name in _LIMITED else 0
                for shape in shapes:
                    yield bytes([index, version, number, shape, size, index + shape, 0])
                if thorough or row.name in _LARGE_RESPONSES:
                    yield bytes([index, version, number, Shape.SAME, size, index, 1])
                    yield bytes([index, version, number, Shape.KNOWN, size, index, 1])
    yield from _fetches()
    names = [row.name for row in HANDLERS]
    yield bytes([names.index("CreateTopics"), 0, 0, 0, 0, 0, 2])


def _fetches() -> Iterator[bytes]:
    """Yield fetches that wait while another client writes, and that open a session."""
    names = [row.name for row in HANDLERS]
    index = names.index("Fetch")
    row = HANDLERS[index]
    path = array_paths(row.request, row.last_version).index(("topics", "partitions"))
    for seed in (WAITING_FETCH, FETCH_WITH_SESSION):
        for shape in (Shape.SAME, Shape.UNKNOWN, Shape.KNOWN):
            yield bytes([index, row.last_version - row.first_version, path, shape, 0, seed, 0])


TARGET = Target(name="hostile_counts", fuzz=fuzz, seeds=seeds, examples=20)
