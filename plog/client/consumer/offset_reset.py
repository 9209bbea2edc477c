"""Resets by auto.offset.reset: when to reset a position, and the error if a reset is not allowed.

Three cases need a new position, and each has a function here:

- The group has committed no offset: `reset_uncommitted`, called by offset_fetcher.py.
- The position is out of the range of the leader's log: `reset_out_of_range`, by fetch_response.py.
- The leader's log was truncated before the position (KIP-320): `reset_truncated`, by
  offset_fetcher.py.

With auto.offset.reset=none they return the error for the application. A reset only marks the
partition with its target (reset_target.py); `OffsetFetcher` then requests the offset from the
leader, and `SubscriptionState` drops responses of older generations. Source: Kafka 3.9
SubscriptionState, FetchCollector.handleInitializeErrors.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from plog.client.consumer.partition_state import NO_EPOCH, Inquiry, PartitionState
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import LogTruncated, NoOffsetForPartition
from plog.errors import OffsetOutOfRange
from plog.wire.messages.offset_for_leader_epoch import EpochEndOffset

log = logging.getLogger("plog.client")


def reset_uncommitted(
    positions: SubscriptionState, uncommitted: Sequence[tuple[PartitionState, int]]
) -> list[tuple[PartitionState, int, NoOffsetForPartition]]:
    """Reset partitions without a committed offset; return those that must not be reset, and why.

    Each partition comes with its generation. A single error names all of those returned.
    """
    lacking = [one for one in uncommitted if not positions.reset_by_default(*one)]
    if not lacking:
        return []
    partitions = [state.partition for state, _ in lacking]
    names = ", ".join(str(partition) for partition in sorted(partitions))
    error = NoOffsetForPartition(
        f"cannot find the position of {names}: no offset is committed and auto.offset.reset is"
        " none; seek, or commit an offset",
        partitions,
    )
    return [(state, generation, error) for state, generation in lacking]


def reset_out_of_range(
    positions: SubscriptionState, state: PartitionState, generation: int, offset: int
) -> OffsetOutOfRange | None:
    """Reset a position that the leader's log does not contain, or return the error.

    Retention has deleted the offset, or the log was truncated. All records that were fetched before
    must have been taken, and the response must be the leader's: a follower may lag behind
    (KIP-392).
    """
    what = f"offset {offset} of {state.partition} is out of range"
    if positions.reset_by_default(state, generation):
        log.warning("%s: resetting to %s", what, positions.default_reset)
        return None
    return OffsetOutOfRange(f"{what}, and auto.offset.reset is none; seek to a valid offset")


def reset_truncated(
    positions: SubscriptionState, one: Inquiry, end: EpochEndOffset
) -> LogTruncated | None:
    """Reset a position beyond the `end` of its epoch in the leader's log, or return the error.

    The new position is the end, or that of auto.offset.reset if the leader has no such epoch.
    """
    # -1 in the response means that the leader has no such epoch, so no common offset is known.
    is_known = end.leader_epoch > NO_EPOCH and end.end_offset >= 0
    what = f"the log of {one.state.partition} was truncated before the position {one.position}"
    if is_known:
        what += f", to {end.end_offset}"
    # With ``none``, only the application may decide to skip or to repeat records.
    if positions.default_reset is None:
        return LogTruncated(
            f"{what}: records that this consumer has read were lost; seek to continue"
        )
    log.warning("%s; resetting the position", what)
    if is_known:
        # The largest offset that both logs have in common.
        positions.place(one.state, one.generation, end.end_offset, end.leader_epoch)
    else:
        positions.reset_by_default(one.state, one.generation)
    return None
