"""Reset positions according to auto.offset.reset, or return an error if that is not allowed.

Three cases need a new position; each has a function here:

- The group has no committed offset: offset_fetcher.py calls `reset_uncommitted`.
- The leader's log does not contain the position: fetch_response.py calls `reset_out_of_range`.
- The leader's log was truncated before the position (KIP-320): offset_fetcher.py calls
  `reset_truncated`.

With auto.offset.reset=none, the functions return the error for the application. Otherwise, they
mark the partition with the reset's target (reset_target.py), and `OffsetFetcher` requests the
offset from the leader. Source: Kafka 3.9 SubscriptionState, FetchCollector.handleInitializeErrors.
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
    """Reset partitions without a committed offset; return the partitions that must not be reset.

    Arguments and results contain a partition's state and generation. The returned partitions share
    one error, which names all of them.
    """
    lacking = [one for one in uncommitted if not positions.reset_by_default(*one)]
    if not lacking:
        return []
    partitions = [state.partition for state, _ in lacking]
    names = ", ".join(str(partition) for partition in sorted(partitions))
    error = NoOffsetForPartition(
        f"cannot determine the position in {names}: no offset is committed and auto.offset.reset"
        " is none; seek, or commit an offset",
        partitions,
    )
    return [(state, generation, error) for state, generation in lacking]


def reset_out_of_range(
    positions: SubscriptionState, state: PartitionState, generation: int, offset: int
) -> OffsetOutOfRange | None:
    """Reset a position that the leader's log does not contain, or return the error.

    Retention may have deleted the offset, or the log was truncated. Call this only after all
    fetched records were taken, and only for a response from the leader: a follower may lag behind
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
    """Reset a position after the `end` of its epoch in the leader's log, or return the error.

    The new position is that end. If the leader does not know the epoch, auto.offset.reset applies.
    """
    # -1 in the response means that the leader does not know the epoch or any earlier epoch, so no
    # common offset is known.
    is_known = end.leader_epoch > NO_EPOCH and end.end_offset >= 0
    what = f"the log of {one.state.partition} was truncated before the position {one.position}"
    if is_known:
        what += f", to {end.end_offset}"
    # With ``none``, the application must decide whether to skip or repeat records.
    if positions.default_reset is None:
        return LogTruncated(
            f"{what}: records that this consumer has read were lost; seek to continue"
        )
    log.warning("%s; resetting the position", what)
    if is_known:
        # Up to this offset, both logs contain the same records.
        positions.place(one.state, one.generation, end.end_offset, end.leader_epoch)
    else:
        positions.reset_by_default(one.state, one.generation)
    return None
