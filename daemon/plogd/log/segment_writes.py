"""The file work of appends and rolls: all or nothing, whatever is raised on the way.

Both ways to append use it: log.py writes at once, lane_writes.py in a job on a thread of its own.
What a write means for the log (offsets, epochs, producers) is their business; what has to happen
together with the write is passed in as `then`.

Source: Kafka 3.9 LocalLog.append, LocalLog.roll; docs/architecture.md, rule R15.
Invariant: after any exception the segment and its indexes are as before, or HalfWritten is raised.
"""

from __future__ import annotations

from collections.abc import Callable

from plog.errors import RecordListTooLarge
from plog.types import TopicPartition
from plogd.log.batch_validator import ValidatedBatch
from plogd.log.io_errors import HalfWritten
from plogd.log.log_segment import LogSegment
from plogd.ports import Files
from plogd.topic_config import TopicConfig


def check_fits(topic_partition: TopicPartition, nbytes: int, config: TopicConfig) -> None:
    """Raise RecordListTooLarge if no segment may hold a batch of this size."""
    if nbytes > config.segment_bytes:
        raise RecordListTooLarge(
            f"{topic_partition}: a batch of {nbytes} bytes does not fit into a segment of "
            f"{config.segment_bytes} (segment.bytes)"
        )


def must_roll(
    segment: LogSegment, batch: ValidatedBatch, last_offset: int, config: TopicConfig, now_ms: int
) -> bool:
    """Whether the batch belongs into a new segment. Raises OSError."""
    return segment.should_roll(config, len(batch.view), batch.max_timestamp, last_offset, now_ms)


def make_successor(
    files: Files, directory: str, old: LogSegment, base_offset: int, config: TopicConfig
) -> LogSegment:
    """Return a new segment at `base_offset`, where `old` ends.

    Whatever is raised, appends may go on in `old`. Raises OSError.
    """
    old.on_become_inactive()
    return LogSegment.create(files, directory, base_offset, config)


def write_batch(
    segment: LogSegment, batch: ValidatedBatch, last_offset: int, then: Callable[[], None]
) -> None:
    """Append `batch` to `segment` and call `then`: both, or neither has happened.

    `then` must not change anything before the last step that can fail. Raises what the append or
    `then` has raised; HalfWritten if the batch cannot be removed again.
    """
    view, header, max_timestamp, max_timestamp_delta, _ = batch
    size_before = segment.records.size_bytes
    first_offset = last_offset - header.last_offset_delta
    try:
        segment.append(view, last_offset, max_timestamp, first_offset + max_timestamp_delta)
        then()
    except Exception as error:
        try:
            segment.truncate_to_size(size_before)
        except Exception as problem:
            raise HalfWritten(f"{error}; part of a batch is left: {problem!r}") from error
        raise
