"""Lanes for validation jobs: one for small and one for large batches, fair between topics.

A lane runs one job at a time, and takes the next job from another topic. A topic that floods the
lane therefore delays each of the others by only one job. A batch that turns out to be large moves
to the other lane, so that small batches do not wait for decompression bombs. The lanes also limit
the memory in use: at most one small and one large batch are decompressed at any time.

Called on the reactor thread by append_queue.py, which keeps appends to a partition in order.
Source: docs/decisions/0015-recompression-is-a-job.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from plog.records.batch import ATTRIBUTES_POSITION, COMPRESSION_MASK
from plogd.log.batch_validator import (
    AppendOrigin,
    BatchRules,
    DecompressedTooLarge,
    RecordReading,
    ValidatedBatch,
    validate_batch,
)
from plogd.ports import Jobs, Later, failed

SMALL_BYTES: Final = 1 << 20
"""Maximum uncompressed size of a batch that the lane for small batches validates."""
_SMALL_COMPRESSED_BYTES: Final = SMALL_BYTES // 4
"""Larger compressed batches are directly submitted to the lane for large batches."""

_Job = Callable[[], ValidatedBatch]


class _Lane:
    """A lane that runs the jobs of all topics one at a time, in order within each topic."""

    def __init__(self, jobs: Jobs, name: str) -> None:
        self._jobs = jobs
        self._name = name
        self._waiting: dict[str, deque[tuple[_Job, Later[ValidatedBatch]]]] = {}
        """Queued jobs by topic; the first topic is next."""
        self._is_busy = False

    def submit(self, topic: str, job: _Job) -> Later[ValidatedBatch]:
        """Run `job` after the topic's earlier jobs, alternating with other topics."""
        outcome: Later[ValidatedBatch] = Later()
        self._waiting.setdefault(topic, deque()).append((job, outcome))
        if not self._is_busy:
            self._start()
        return outcome

    def _start(self) -> None:
        topic = next(iter(self._waiting))
        waiting = self._waiting.pop(topic)
        job, outcome = waiting.popleft()
        if waiting:
            self._waiting[topic] = waiting  # At the end of the dict, so that other topics are next.
        self._is_busy = True
        # A job that cannot be submitted must not stop the lane.
        try:
            running = self._jobs.submit(self._name, job)
        except Exception as error:
            running = failed(error)
        running.then(
            lambda batch: self._ended(partial(outcome.succeed, batch)),
            lambda error: self._ended(partial(outcome.fail, error)),
        )

    def _ended(self, deliver: Callable[[], None]) -> None:
        self._is_busy = False
        # The next job starts first, so that the lane's thread is not idle during `deliver`.
        if self._waiting:
            self._start()
        deliver()


class ValidationLanes:
    """A broker's lanes for small and large batches."""

    def __init__(self, jobs: Jobs) -> None:
        self._small = _Lane(jobs, "validate:small")
        self._large = _Lane(jobs, "validate:large")

    def validate(
        self,
        topic: str,
        data: memoryview,
        *,
        rules: BatchRules,
        now_ms: int,
        reading: RecordReading,
    ) -> Later[ValidatedBatch]:
        """Validate a client's batch in a job. Fails with the same errors as `validate_batch`."""

        def job(reading: RecordReading) -> ValidatedBatch:
            reading.on_step()  # Raises if the append was abandoned before the job started.
            return validate_batch(
                data, rules=rules, now_ms=now_ms, origin=AppendOrigin.CLIENT, reading=reading
            )

        large = partial(job, reading)
        # If the limit is below SMALL_BYTES, the small lane must not raise it.
        if reading.max_decompressed_bytes <= SMALL_BYTES or not _looks_small(data):
            return self._large.submit(topic, large)
        small = partial(job, reading._replace(max_decompressed_bytes=SMALL_BYTES))
        outcome: Later[ValidatedBatch] = Later()

        def on_error(error: Exception) -> None:
            if isinstance(error, DecompressedTooLarge):
                self._large.submit(topic, large).then(outcome.succeed, outcome.fail)
            else:
                outcome.fail(error)

        self._small.submit(topic, small).then(outcome.succeed, on_error)
        return outcome


def _looks_small(data: memoryview) -> bool:
    # The uncompressed size is unknown until the batch is decompressed, so this is only a guess.
    is_compressed = data[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK
    return len(data) <= (_SMALL_COMPRESSED_BYTES if is_compressed else SMALL_BYTES)
