"""The generator of hostile requests, and the meter that measures their turns."""

from __future__ import annotations

import pytest

from plog.records.batch import Compression
from plog.records.compression import compress, decompress
from plog.wire.messages.fetch import FetchRequest
from plog.wire.messages.metadata import MetadataRequest
from plogd.apis.api_table import HANDLERS, Row
from plogd.ports import Later
from tests.fuzz.hostile_requests import Known, Shape, array_paths, hostile_request
from tests.fuzz.targets.hostile_counts import FETCH_WITH_SESSION, WAITING_FETCH
from tests.helpers.turn_budget import (
    MeteredPorts,
    TurnBudget,
    TurnMeter,
    countable_codecs,
    metered_broker,
)

_KNOWN = Known(
    topics=["known-0", "known-1"],
    topic_ids=[bytes([number] * 16) for number in (1, 2)],
    produce_topics=1,
    partitions=2,
    groups=["group"],
    members=["member"],
    users=["user"],
    config_names=["retention.ms"],
    records=[bytes(70)],
)


def _metadata(shape: Shape, count: int = 4) -> MetadataRequest:
    request = hostile_request(
        MetadataRequest, 9, ("topics",), count=count, shape=shape, seed=0, known=_KNOWN
    )
    assert isinstance(request, MetadataRequest)
    return request


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (Shape.SAME, ["known-0"] * 4),
        (Shape.KNOWN, ["known-0", "known-1"] * 2),
        (Shape.UNKNOWN, [f"missing-{number}" for number in range(4)]),
        (Shape.MIXED, ["known-0", "missing-1", "known-1", "missing-3"]),
    ],
)
def test_shape_determines_the_names_in_a_request(shape: Shape, names: list[str]) -> None:
    topics = _metadata(shape).topics
    assert topics is not None
    assert [topic.name for topic in topics] == names


def test_absent_array_is_null_where_allowed() -> None:
    assert _metadata(Shape.ABSENT).topics is None


def test_longest_names_have_the_maximum_size_of_a_string() -> None:
    topics = _metadata(Shape.LONGEST).topics
    assert topics is not None
    assert {len(topic.name or "") for topic in topics} == {32_767}


@pytest.mark.parametrize("row", HANDLERS, ids=lambda row: row.name)
def test_every_request_round_trips_in_every_version(row: Row) -> None:
    for version in range(row.first_version, row.last_version + 1):
        for path in array_paths(row.request, version) or [()]:
            for shape in Shape:
                request = hostile_request(
                    row.request, version, path, count=3, shape=shape, seed=shape, known=_KNOWN
                )
                data = request.encode(version)
                assert row.request.decode(data, version).encode(version) == data


def test_named_seeds_make_a_fetch_wait_or_open_a_session() -> None:
    waiting, opening = (
        hostile_request(
            FetchRequest,
            18,
            ("topics", "partitions"),
            count=1,
            shape=Shape.SAME,
            seed=seed,
            known=_KNOWN,
        )
        for seed in (WAITING_FETCH, FETCH_WITH_SESSION)
    )
    assert isinstance(waiting, FetchRequest)
    assert isinstance(opening, FetchRequest)
    assert (waiting.max_wait_ms, waiting.min_bytes, waiting.session_epoch) == (60_000, 1 << 30, -1)
    assert (opening.max_wait_ms, opening.session_epoch) == (0, 0)


# -- the meter ------------------------------------------------------------------------------------


def _count_to(number: int) -> None:
    # The file name makes it count as plog's own code; a test's code does not count.
    source = f"for one in range({number}):\n    pass\n"
    exec(compile(source, "/plogd/counting.py", "exec"))  # noqa: S102 - a constant text


def test_meter_counts_the_lines_of_a_turn_and_names_them() -> None:
    meter = TurnMeter(TurnBudget(steps=10_000))
    with meter.turn("small"):
        _count_to(4_000)
    meter.check()
    with meter.turn("large"):
        _count_to(6_000)
    with pytest.raises(AssertionError, match=r"one turn \(large\) took 12,\d+ .*counting\.py:2"):
        meter.check()


def test_timers_due_together_share_a_turn_and_added_ones_have_another() -> None:
    meter = TurnMeter()
    ports = MeteredPorts(meter)
    for _ in range(3):
        ports.timers.call_later(0, lambda: ports.timers.call_later(0, lambda: None) and None)
    ports.settle()
    assert meter.turns == 2


def test_job_is_not_counted_but_its_result_is() -> None:
    meter = TurnMeter(TurnBudget(steps=10_000))
    ports = MeteredPorts(meter)
    done: Later[None] = ports.jobs.submit("lane", lambda: _count_to(50_000))
    done.then(lambda _: _count_to(1_000), lambda error: None)
    ports.settle()
    meter.check()
    assert meter.turns == 1
    assert 2_000 <= meter.most.steps < 2_100


def test_compressed_bytes_count_only_within_a_turn() -> None:
    meter = TurnMeter(TurnBudget(codec_bytes=1_000))
    with countable_codecs(meter):
        small = compress(Compression.GZIP, bytes(5_000))
        with meter.turn("decompress"):
            decompress(Compression.GZIP, small, 10_000)
    with pytest.raises(AssertionError, match="5,000 bytes compressed or decompressed"):
        meter.check()


def test_requests_to_a_metered_broker_are_counted_per_turn() -> None:
    broker = metered_broker(TurnBudget(steps=0))
    assert broker.meter.turns == 0
    broker.ask(_metadata(Shape.UNKNOWN, 20), 9)
    assert broker.meter.turns >= 1
    assert broker.meter.most.wire_steps > 20
    with pytest.raises(AssertionError, match="interpreted steps"):
        broker.meter.check()
