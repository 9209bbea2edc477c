"""What compaction may remove from a log: the rules of the checker, which knows all records.

A missing record must be outdated: a later record has its key, or its transaction was aborted. The
last record of a key may only be missing if it is a tombstone that was kept for
``delete.retention.ms``, and if it was removed together with all older records of its key.
Otherwise, a consumer that reads the log from its beginning would find a value that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plog.records.codec import Record
from tests.sim.checker import Anomaly, History, PartitionHistory, Value, value_of


def outdated_records(
    history: History, known: PartitionHistory, records: Sequence[Record], now_ms: int
) -> dict[int, Value]:
    """Return the known records that are missing from `records`, but may have been removed.

    `now_ms` is the wall clock at which the log was read. Raises Anomaly for a lost tombstone.
    """
    present = {record.offset for record in records}
    # The offset of the last record of each key, and whether it is in the log.
    last = {record.key: record.offset for record in records if _counts(history, value_of(record))}
    unseen = _unseen_deletions(history, known, now_ms)
    found: dict[int, Value] = {}
    for offset in sorted(known.values.keys() - present, reverse=True):
        value = known.values[offset]
        key = history.keys[value]
        if value in history.aborted or offset < last.get(key, -1) or key in unseen:
            found[offset] = value
        elif value in history.tombstones:
            _check_tombstone(history, known, value, now_ms)
            # Nothing is known of a later record, but this one was the last of all.
            if key in last:
                raise Anomaly(
                    "lost-tombstone",
                    f"{known.name} offset {offset}: the tombstone {value!r} is missing, but not the"
                    f" older record of {key!r} at offset {last[key]}",
                )
            last[key] = offset
            found[offset] = value
    return found


def _counts(history: History, value: Value) -> bool:
    """Return whether a record replaces older records of its key."""
    return value not in history.aborted


def _check_tombstone(history: History, known: PartitionHistory, value: Value, now_ms: int) -> None:
    kept_ms = _longest_age_ms(history, value, now_ms)
    retention_ms = history.compacted[history.origins[value].topic]
    if kept_ms < retention_ms:
        raise Anomaly(
            "lost-tombstone",
            f"{known.name} offset {known.offsets[value]}: the tombstone {value!r} was sent at most"
            f" {kept_ms} ms ago and is missing, but must be kept for {retention_ms} ms",
        )


def _longest_age_ms(history: History, value: Value, now_ms: int) -> int:
    """Return for how long a tombstone may have been in the log, by a clock that was set."""
    tombstone = history.tombstones[value]
    times = [tombstone.sent_ms, now_ms]
    for before_ms, after_ms in history.clock_jumps[tombstone.jumps :]:
        times += before_ms, after_ms
    return max(times) - min(times)


def _unseen_deletions(history: History, known: PartitionHistory, now_ms: int) -> set[bytes | None]:
    """Return the keys of tombstones that may have been in the log without being noticed."""
    return set(_keys_of_unseen_deletions(history, known, now_ms))


def _keys_of_unseen_deletions(
    history: History, known: PartitionHistory, now_ms: int
) -> Iterator[bytes | None]:
    origins = [history.origins[value] for value in known.values.values()]
    partitions = {(origin.topic, origin.partition) for origin in origins}
    for value in history.tombstones.keys() - known.offsets.keys():
        origin = history.origins[value]
        age_ms = _longest_age_ms(history, value, now_ms)
        is_here = (origin.topic, origin.partition) in partitions
        if is_here and age_ms >= history.compacted[origin.topic]:
            yield history.keys[value]
