"""The checker detects each anomaly, and accepts correct histories; without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from plog.records.codec import Record
from tests.sim.checker import Anomaly, History, PartitionKey, Poll
from tests.sim.final import FinalLog, check_log
from tests.sim.topics import Sight, Topics

KEY = PartitionKey(b"t" * 16, 0)


def history(*batches: Sequence[bytes]) -> History:
    """Return a history in which only the sends of these batches of one session are known."""
    new = History()
    number = 0
    for values in batches:
        new.sending("t", 0, "s", number, values)
        number += len(values)
    return new


def poll(position: int, *records: tuple[int, bytes], end: int = 100, known: int = 0) -> Poll:
    """Return a poll that returned these records."""
    return Poll(
        position=position,
        known_end=known,
        records=[Record(offset=offset, timestamp=0, value=value) for offset, value in records],
        high_watermark=end,
        log_start_offset=0,
    )


def final(*records: tuple[int, bytes], start: int = 0, end: int = 100) -> FinalLog:
    """Return a log at the end of the run."""
    made = [Record(offset=offset, timestamp=0, value=value) for offset, value in records]
    return FinalLog(start_offset=start, end_offset=end, records=made)


def test_correct_history_shows_no_anomaly() -> None:
    observed = history([b"a", b"b"], [b"c"])
    observed.acknowledged(KEY, 0, [b"a", b"b"])
    observed.acknowledged(KEY, 2, [b"c"])
    assert observed.polled(KEY, poll(0, (0, b"a"), (1, b"b"), (2, b"c"), end=3, known=3)) == 3
    assert observed.polled(KEY, poll(1, (0, b"a"), (1, b"b"), end=3)) == 2
    assert observed.polled(KEY, poll(3, end=3)) == 3
    check_log(observed, KEY, final((0, b"a"), (1, b"b"), (2, b"c"), end=3))
    check_log(observed, KEY, final((1, b"b"), (2, b"c"), start=1, end=3))


# mypy: disable-error-code=func-returns-value
POLLS: dict[str, Callable[[History], object]] = {
    "inconsistent-offsets": lambda observed: (
        observed.acknowledged(KEY, 0, [b"a"]),
        observed.polled(KEY, poll(0, (0, b"b"))),
    ),
    "duplicate": lambda observed: observed.polled(KEY, poll(0, (0, b"a"), (1, b"a"))),
    "phantom-read": lambda observed: observed.polled(KEY, poll(0, (0, b"z"))),
    "poll-skip": lambda observed: observed.polled(KEY, poll(0, (1, b"a"))),
    "int-poll-skip": lambda observed: observed.polled(KEY, poll(0, (0, b"a"), (2, b"b"))),
    "nonmonotonic-poll": lambda observed: observed.polled(KEY, poll(1, (0, b"a"))),
    "int-nonmonotonic-poll": lambda observed: observed.polled(KEY, poll(0, (0, b"a"), (0, b"b"))),
    "read-above-high-watermark": lambda observed: observed.polled(KEY, poll(0, (0, b"a"), end=0)),
    "lost-write": lambda observed: (
        observed.acknowledged(KEY, 0, [b"a"]),
        observed.check_end(KEY, 0, observed.known_end(KEY)),
    ),
    "high-watermark-fell": lambda observed: (
        observed.polled(KEY, poll(0, (0, b"a"))),
        observed.check_end(KEY, 0, observed.known_end(KEY)),
    ),
    "wrong-time": lambda observed: observed.check_time(KEY, 10, offset=3, found_ms=9),
    "bad-answer": lambda observed: observed.acknowledged(KEY, -1, [b"a"]),
}


@pytest.mark.parametrize("name", sorted(POLLS))
def test_impossible_poll_or_acknowledgment_is_an_anomaly(name: str) -> None:
    with pytest.raises(Anomaly) as found:
        POLLS[name](history([b"a", b"b"]))
    assert found.value.name == name


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("lost-write", final((1, b"b"))),
        ("unseen", final()),
        ("nonmonotonic-send", final((0, b"c"), (1, b"a"), (2, b"b"))),
        ("int-nonmonotonic-send", final((1, b"b"), (2, b"a"))),
        ("int-send-skip", final((0, b"b"), (1, b"c"))),
        ("int-send-skip", final((0, b"a"), (1, b"c"))),
        ("int-send-skip", final((0, b"a"))),
    ],
)
def test_impossible_final_log_is_an_anomaly(name: str, log: FinalLog) -> None:
    observed = history([b"a", b"b"], [b"c"])
    if name in ("lost-write", "unseen"):
        observed.acknowledged(KEY, 0, [b"a"])
    with pytest.raises(Anomaly) as found:
        check_log(observed, KEY, log)
    assert found.value.name == name


def _compacted(*keys: bytes) -> History:
    """Return the history of a compacted topic with acknowledged records a, b and c."""
    observed = history()
    observed.compacted = {"t": 1000}
    values = [b"a", b"b", b"c"]
    observed.sending("t", 0, "s", 0, values, keys)
    observed.acknowledged(KEY, 0, values)
    return observed


def test_record_of_a_compacted_topic_may_be_missing_if_its_key_has_a_later_one() -> None:
    observed = _compacted(b"k", b"k", b"l")
    assert observed.polled(KEY, poll(0, (1, b"b"), (2, b"c"))) == 3
    for missing in ([(1, b"b"), (2, b"c")], [(0, b"a"), (1, b"b"), (2, b"c")]):
        records = [
            Record(offset=at, timestamp=0, key=observed.keys[value], value=value)
            for at, value in missing
        ]
        check_log(observed, KEY, FinalLog(start_offset=0, end_offset=3, records=records))


@pytest.mark.parametrize("missing", [b"a", b"b", b"c"])
def test_missing_last_record_of_a_key_is_an_anomaly(missing: bytes) -> None:
    observed = _compacted(b"k", b"l", b"m")
    records = [
        Record(offset=at, timestamp=0, key=observed.keys[value], value=value)
        for at, value in enumerate((b"a", b"b", b"c"))
        if value != missing
    ]
    with pytest.raises(Anomaly) as found:
        check_log(observed, KEY, FinalLog(start_offset=0, end_offset=3, records=records))
    assert found.value.name in ("lost-write", "unseen")


def _check_compacted(observed: History, *present: bytes, now_ms: int = 0) -> None:
    """Check a log that contains only these of the records a, b and c."""
    records = [
        Record(offset=at, timestamp=0, key=observed.keys[value], value=value)
        for at, value in enumerate((b"a", b"b", b"c"))
        if value in present
    ]
    log = FinalLog(start_offset=0, end_offset=3, records=records)
    check_log(observed, KEY, log, now_ms=now_ms)


def test_tombstone_may_be_missing_after_its_retention_time() -> None:
    observed = _compacted(b"k", b"k", b"l")
    observed.deleting([b"b"], 500)
    _check_compacted(observed, b"c", now_ms=1500)
    _check_compacted(observed, b"b", b"c", now_ms=1500)


def test_tombstone_that_is_missing_too_early_is_an_anomaly() -> None:
    observed = _compacted(b"k", b"k", b"l")
    observed.deleting([b"b"], 500)
    with pytest.raises(Anomaly) as found:
        _check_compacted(observed, b"c", now_ms=1499)
    assert found.value.name == "lost-tombstone"
    # The clock was ahead for a while, so the tombstone may have been removed by that clock.
    observed.clock_jumps = [(600, 2000), (2001, 602)]
    _check_compacted(observed, b"c", now_ms=1499)


def test_tombstone_that_is_missing_before_an_older_record_is_an_anomaly() -> None:
    observed = _compacted(b"k", b"k", b"l")
    observed.deleting([b"b"], 500)
    with pytest.raises(Anomaly) as found:
        _check_compacted(observed, b"a", b"c", now_ms=5000)
    assert found.value.name == "lost-tombstone"


def test_tombstone_without_an_acknowledgment_may_have_removed_a_record() -> None:
    observed = _compacted(b"k", b"l", b"m")
    observed.sending("t", 0, "other", 0, [b"d"], [b"k"])
    observed.deleting([b"d"], 0)
    _check_compacted(observed, b"b", b"c", now_ms=1000)
    with pytest.raises(Anomaly):
        _check_compacted(observed, b"b", b"c", now_ms=999)


def test_record_of_an_aborted_transaction_may_be_missing_but_replaces_none() -> None:
    observed = _compacted(b"k", b"k", b"l")
    observed.aborted.add(b"b")
    _check_compacted(observed, b"a", b"c")
    with pytest.raises(Anomaly) as found:
        _check_compacted(observed, b"b", b"c")
    assert found.value.name == "lost-write"


def test_vanished_or_resurrected_topic_is_an_anomaly() -> None:
    topics = Topics()
    topics.created("t", KEY.topic_id, 1)
    with pytest.raises(Anomaly) as found:
        topics.shown({}, topics.known)
    assert found.value.name == "lost-topic"
    topics.deleting(name="t", topic_id=KEY.topic_id)
    topics.shown({}, topics.known)
    before = topics.known
    topics.deleted(name="t", topic_id=KEY.topic_id)
    topics.shown({"t": Sight(KEY.topic_id, 1)}, before)  # A response from before the deletion.
    with pytest.raises(Anomaly) as found:
        topics.shown({"t": Sight(KEY.topic_id, 1)}, topics.known)
    assert found.value.name == "undeleted-topic"
