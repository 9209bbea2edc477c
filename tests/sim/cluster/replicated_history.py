"""The history of replicated partitions, whose leader changes.

The high watermark of a new leader may be lower at first, and a deposed leader that does not know
its successor still responds. So an end offset is compared only with those of the same leader epoch,
or of earlier epochs where a leader must not respond before it knows them (KIP-207). At the end of
the run, all that was ever acknowledged or read must be there.
"""

from __future__ import annotations

from tests.sim.checker import History, PartitionKey, Poll


class ReplicatedHistory(History):
    """Everything observed in one run of a cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.is_final = False
        """Whether all brokers are in sync, so that all ends count."""
        self._end_of_epoch: dict[PartitionKey, dict[int, int]] = {}
        """The largest high watermark that was read in each leader epoch."""

    def known_end(
        self, key: PartitionKey, leader_epoch: int = -1, *, of_earlier_epochs: bool = False
    ) -> int:
        if self.is_final:
            return super().known_end(key)
        ends = self._end_of_epoch.get(key, {})
        if of_earlier_epochs:
            return max((end for epoch, end in ends.items() if epoch <= leader_epoch), default=0)
        return ends.get(leader_epoch, 0)

    def polled(self, key: PartitionKey, poll: Poll) -> int:
        position = super().polled(key, poll)
        if poll.leader_epoch >= 0:
            ends = self._end_of_epoch.setdefault(key, {})
            known = ends.get(poll.leader_epoch, 0)
            ends[poll.leader_epoch] = max(known, poll.high_watermark)
        return position
