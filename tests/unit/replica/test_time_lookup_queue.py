"""Queues of lookups by time: lanes, slices and cancellation."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from plog.errors import CorruptMessage, KafkaStorageError
from plogd.log.log import Log
from plogd.log.segment.time_index import TimestampAndOffset
from plogd.log.time_lookup import _BATCH_MAX_BYTES, Steps
from plogd.ports import Cancelled, Later
from plogd.replica.time_lookup_queue import MAX_STARTED, Found, TimeLookupQueue
from tests.helpers.log.log_site import four_segments
from tests.helpers.sim.sim_ports import SimJobs, outcome

LANE = "time:/a"
FOUND = TimestampAndOffset(1, 2, 3)


class Queue:
    """A queue with one log, and the steps that its lookups made."""

    def __init__(self) -> None:
        self.jobs = SimJobs()
        self.ended: list[Log] = []
        self.queue = TimeLookupQueue(self.jobs, self.ended.append)
        _, self.log = four_segments()
        self.steps: list[str] = []
        self.begun: list[str] = []
        self.closed: list[str] = []

    def submit(self, name: str, steps: int, error: Exception | None = None) -> Later[Found]:
        """Submit a lookup with `steps` steps."""

        def look_up() -> Steps[Found]:
            self.begun.append(name)
            try:
                for _ in range(steps):
                    self.steps.append(name)
                    yield
                if error is not None:
                    raise error
                return FOUND
            finally:
                self.closed.append(name)

        return self.queue.submit(self.log, look_up)


def test_look_up_runs_on_the_lane_of_its_directory() -> None:
    queue = Queue()
    found = queue.submit("a", 3)
    assert queue.jobs.waiting == [LANE]
    queue.jobs.run_all()
    assert outcome(found) == FOUND
    assert queue.ended == [queue.log]


def test_short_look_up_does_not_wait_for_a_long_one_to_end() -> None:
    queue = Queue()
    long, short = queue.submit("long", 10_000), queue.submit("short", 2)
    for _ in range(3):
        queue.jobs.run_one(LANE)
    assert outcome(short) == FOUND
    assert not long.done
    queue.jobs.run_all()
    assert outcome(long) == FOUND


def test_only_max_started_lookups_keep_their_progress() -> None:
    """Each may hold a decompressed batch."""
    queue = Queue()
    count = MAX_STARTED + 3
    found = [queue.submit(str(number), 100) for number in range(count)]
    held: list[int] = []
    while queue.jobs.waiting:
        queue.jobs.run_one(LANE)
        held.append(len(queue.begun) - len(queue.closed))
    assert max(held) == MAX_STARTED
    assert [outcome(one) for one in found] == [FOUND] * count
    assert len(queue.begun) == len(queue.closed) == count + 3, "three have begun twice"


def test_short_look_up_ends_soon_despite_many_long_ones() -> None:
    queue = Queue()
    long = [queue.submit("long", 10_000) for _ in range(30)]
    short = queue.submit("short", 2)
    for _ in range(2 * len(long) + 2):
        queue.jobs.run_one(LANE)
    assert outcome(short) == FOUND
    assert not any(one.done for one in long)


def test_cancelled_look_up_is_skipped_before_it_starts() -> None:
    queue = Queue()
    found = [queue.submit(str(number), 1) for number in range(MAX_STARTED + 2)]
    for one in found[1:]:
        one.cancel()
    queue.jobs.run_all()
    assert queue.steps == ["0"]
    assert outcome(found[0]) == FOUND
    with pytest.raises(Cancelled):
        outcome(found[-1])


def test_cancelled_look_up_ends_between_two_slices() -> None:
    queue = Queue()
    long, other = queue.submit("long", 10_000), queue.submit("other", 10_000)
    for _ in range(2):
        queue.jobs.run_one(LANE)
    long.cancel()
    assert queue.closed == ["long"]
    assert queue.ended == [queue.log]
    steps = queue.steps.count("long")
    queue.jobs.run_one(LANE)
    other.cancel()  # Its next slice is already a job.
    queue.jobs.run_all()
    assert queue.steps.count("long") == steps
    assert queue.closed == ["long", "other"]
    assert queue.jobs.waiting == []


def test_cancelled_look_up_ends_within_its_slice() -> None:
    queue = Queue()
    laters: list[Later[Found]] = []

    def look_up() -> Steps[Found]:
        yield
        laters[0].cancel()  # As the reactor would, while this runs on a thread.
        yield
        raise AssertionError("one step too many")

    laters.append(queue.queue.submit(queue.log, look_up))
    queue.jobs.run_all()
    assert laters[0].done and queue.jobs.waiting == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EIO, "broken"), KafkaStorageError),
        (CorruptMessage("damaged"), CorruptMessage),
        (ValueError("a bug"), ValueError),
    ],
)
def test_error_ends_only_its_own_look_up(error: Exception, expected: type[Exception]) -> None:
    queue = Queue()
    failing, other = queue.submit("failing", 1, error), queue.submit("other", 30)
    queue.jobs.run_all()
    with pytest.raises(expected):
        outcome(failing)
    assert outcome(other) == FOUND


def test_directories_do_not_wait_for_each_other() -> None:
    queue = Queue()
    queue.submit("here", 1)
    queue.log.log_dir = "/b"
    there = queue.submit("there", 1)
    queue.jobs.run_one("time:/b")
    assert outcome(there) == FOUND


def test_look_up_fails_when_its_job_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is stopping."""
    queue = Queue()

    def refuse(lane: str, function: Callable[[], bool]) -> Later[bool]:
        later: Later[bool] = Later()
        later.fail(RuntimeError("too late"))
        return later

    monkeypatch.setattr(queue.jobs, "submit", refuse)
    found = queue.submit("a", 1)
    with pytest.raises(RuntimeError, match="too late"):
        outcome(found)


def test_uncompressed_batches_of_a_directory_stay_within_their_bound() -> None:
    assert MAX_STARTED * _BATCH_MAX_BYTES <= 128 << 20
