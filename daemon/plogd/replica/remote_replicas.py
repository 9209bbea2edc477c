"""The other replicas of a partition, as its leader knows them, and the in-sync replicas (ISR).

The leader learns a follower's position from the follower's fetches. By rule R5, a follower fetches
only from the offset that it can acknowledge itself, so at the default settings everything below its
fetch offset is durable there. This knowledge ends with the leader epoch: an instance belongs to one
epoch (rule C6).

A change of the ISR takes effect when the controller has confirmed it. Until then, both the old and
the proposed members count toward the high watermark, because either may be elected (KIP-497).

This module does not perform I/O. Times are monotonic, in milliseconds. Source: Kafka 3.9 Partition,
Replica; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from plog.errors import NotLeaderOrFollower
from plog.types import TopicPartition

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
"""The broker epoch in requests of older versions."""


class RemoteReplica:
    """What a leader knows about one follower.

    Attributes:
        end_offset: the follower's fetch offset, below which it has all records; -1 if unknown.
        log_start_offset: the start of the follower's log; -1 if unknown.
        broker_epoch: the broker epoch in the follower's last fetch; -1 if it has sent none.
        caught_up_ms: the last time at which the follower had all records.
        sent_high_watermark: the leader's high watermark at the follower's last fetch.
    """

    __slots__ = (
        "_leader_end_offset",
        "_leader_end_offset_ms",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "log_start_offset",
        "sent_high_watermark",
    )

    def __init__(self, caught_up_ms: float) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.caught_up_ms = caught_up_ms
        self.sent_high_watermark = UNKNOWN_OFFSET
        self._leader_end_offset = 0
        """The leader's end offset at the time of the follower's last fetch."""
        self._leader_end_offset_ms = float("-inf")

    def fetched(
        self,
        offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: float,
    ) -> bool:
        """Record a fetch from `offset`; return whether the follower's log start has moved."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self._leader_end_offset:
            # It has everything that existed at its last fetch. Otherwise, a follower that keeps up
            # with a busy leader would seem to fall behind.
            self.caught_up_ms = max(self.caught_up_ms, self._leader_end_offset_ms)
        self.end_offset = offset
        has_moved = self.log_start_offset != log_start_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._leader_end_offset = leader_end_offset
        self._leader_end_offset_ms = now_ms
        return has_moved

    def caught_up(self, now_ms: float) -> None:
        """Record a fetch like the last one, from the leader's end offset."""
        self.caught_up_ms = self._leader_end_offset_ms = now_ms
        self._leader_end_offset = self.end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: float, max_lag_ms: float) -> bool:
        """Return whether the follower had all records at some time in the last `max_lag_ms`."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


class RemoteReplicas:
    """The followers of a partition and its ISR, in one leader epoch.

    Args:
        leader: the leader's broker id.
        replicas: the ids of all replicas.
        isr: the confirmed ISR, which contains the leader.
        epoch_start_offset: the leader's end offset when its epoch began.
        is_eligible: returns whether the broker is live and not shutting down (KIP-841), and has the
            given broker epoch (KIP-903).
        is_leased: returns whether no other broker can have taken this one's place (rule C3).
        max_lag_ms: returns ``replica.lag.time.max.ms``.
        prompt_high_watermark: returns whether followers receive a new high watermark without
            waiting for records, because consumers read from them (KIP-392).
        now_ms: the time at which the epoch began.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        leader: int,
        replicas: Collection[int],
        isr: Collection[int],
        epoch_start_offset: int,
        is_eligible: Callable[[int, int], bool],
        is_leased: Callable[[], bool],
        max_lag_ms: Callable[[], float],
        prompt_high_watermark: Callable[[], bool] = lambda: False,
        now_ms: float,
    ) -> None:
        self._topic_partition = topic_partition
        self._leader = leader
        self._epoch_start_offset = epoch_start_offset
        self._is_eligible = is_eligible
        self._is_leased = is_leased
        self._max_lag_ms = max_lag_ms
        self._prompt_high_watermark = prompt_high_watermark
        self.isr = tuple(isr)
        """The confirmed ISR."""
        self.proposed: tuple[int, ...] | None = None
        """The ISR in the request that the controller has not answered yet."""
        self._followers: dict[int, RemoteReplica] = {}
        self.assign(replicas, now_ms)

    # -- replicas -----------------------------------------------------------------------------

    @property
    def followers(self) -> Mapping[int, RemoteReplica]:
        """The followers by broker id."""
        return self._followers

    def check_follower(self, broker_id: int, broker_epoch: int) -> None:
        """Raise NotLeaderOrFollower unless a fetch in this broker epoch is from a follower."""
        follower = self._followers.get(broker_id)
        if follower is None:
            # As in Kafka's Partition.getReplicaOrException.
            raise NotLeaderOrFollower(
                f"broker {broker_id} is not a follower of {self._topic_partition}"
            )
        if UNKNOWN_EPOCH != broker_epoch < follower.broker_epoch:
            # From before the follower's restart, which may have lost records (KIP-903).
            raise NotLeaderOrFollower(
                f"broker {broker_id} has fetched {self._topic_partition} in broker epoch"
                f" {follower.broker_epoch}, which is newer than {broker_epoch}"
            )

    def check_lease(self) -> None:
        """Raise NotLeaderOrFollower if another member of the ISR may lead already (rule C3).

        Records with acks=all need no check: they wait for all members of the ISR, which do not
        fetch from this broker any more once there is another leader.
        """
        # A proposed member may be elected, too. If the leader is alone, only an unclean election
        # can replace it.
        if (len(self.isr) > 1 or self.proposed is not None) and not self._is_leased():
            raise NotLeaderOrFollower(
                f"another broker may lead {self._topic_partition}: this broker has not reached"
                " ZooKeeper for zookeeper.session.timeout.ms"
            )

    def assign(self, replicas: Iterable[int], now_ms: float) -> None:
        """Set the assigned replicas; what is known about the remaining ones is kept."""
        old = self._followers
        # A member of the ISR has the whole of `max_lag_ms` to fetch from a new leader.
        self._followers = {
            one: old.get(one) or RemoteReplica(now_ms if one in self.isr else float("-inf"))
            for one in replicas
            if one != self._leader
        }

    def confirm(self, isr: Iterable[int]) -> None:
        """Set the ISR to the one that the controller has confirmed."""
        self.isr, self.proposed = tuple(isr), None

    def withdraw(self) -> None:
        """Forget the proposed ISR, because the controller has rejected it."""
        self.proposed = None

    def _counts(self, broker_id: int) -> bool:
        """Return whether the replica is in the maximal ISR: confirmed or proposed."""
        return broker_id in self.isr or (self.proposed is not None and broker_id in self.proposed)

    # -- offsets ------------------------------------------------------------------------------

    def high_watermark(self, acknowledged: int, leader_end_offset: int, now_ms: float) -> int:
        """Return the offset below which all in-sync replicas have the records (rule R2).

        `acknowledged` is the offset up to which the leader itself can acknowledge records. Returns
        -1 while the position of an in-sync replica is unknown.
        """
        result, max_lag_ms = acknowledged, self._max_lag_ms()
        for broker_id, follower in self._followers.items():
            if follower.end_offset >= result:
                continue
            if self._counts(broker_id) or (
                # About to join: if the high watermark moved on, a follower that is always a little
                # behind could never join.
                follower.end_offset != UNKNOWN_OFFSET
                and follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms)
                and self._is_eligible(broker_id, follower.broker_epoch)
            ):
                result = follower.end_offset
        return result

    def is_idle(
        self, broker_id: int, offset: int, broker_epoch: int, log_start_offset: int
    ) -> bool:
        """Return whether a fetch from the high watermark `offset` says nothing new."""
        follower = self._followers.get(broker_id)
        return (
            follower is not None
            and follower.end_offset == follower.sent_high_watermark == offset
            and follower.broker_epoch == broker_epoch
            and follower.log_start_offset == log_start_offset
            and broker_id in self.isr
        )

    def owes_high_watermark(self, broker_id: int, high_watermark: int) -> bool:
        """Return whether a follower must receive the high watermark before the next records."""
        # As in Kafka (KAFKA-9731): if no consumer reads from followers, this only costs requests.
        if not self._prompt_high_watermark():
            return False
        follower = self._followers.get(broker_id)
        return follower is not None and follower.sent_high_watermark < high_watermark

    def send_high_watermark(self, broker_id: int, high_watermark: int) -> bool:
        """Note what a response to a follower contains; return whether it must be sent at once."""
        is_owed = self.owes_high_watermark(broker_id, high_watermark)
        self._followers[broker_id].sent_high_watermark = high_watermark
        return is_owed

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the smallest log start offset of the live replicas (KIP-107)."""
        starts = [
            follower.log_start_offset
            for broker_id, follower in self._followers.items()
            if self._is_eligible(broker_id, follower.broker_epoch)
        ]
        return min([log_start_offset, *starts])

    # -- changes of the ISR -------------------------------------------------------------------

    def after_fetch(self, broker_id: int, high_watermark: int) -> tuple[int, ...] | None:
        """Return the ISR to propose after a fetch of this follower, or None."""
        if broker_id not in self.isr:
            return self.expanded(broker_id, high_watermark)
        if self.proposed is not None or not self._has_lost_records(broker_id, high_watermark):
            return None
        return tuple(one for one in self.isr if one != broker_id)

    def _has_lost_records(self, broker_id: int, high_watermark: int) -> bool:
        """Return whether a member of the ISR lacks committed records, so that it has lost them."""
        follower = self._followers.get(broker_id)
        return follower is not None and UNKNOWN_OFFSET != follower.end_offset < high_watermark

    def expanded(self, broker_id: int, high_watermark: int) -> tuple[int, ...] | None:
        """Return the ISR with this follower added, or None if it must not join now."""
        if self.proposed is not None or broker_id in self.isr:
            return None
        follower = self._followers[broker_id]
        # KAFKA-7128: below the start of the epoch, the follower may lack records that were
        # committed by an earlier leader, because the high watermark of a new leader lags.
        if follower.end_offset < max(high_watermark, self._epoch_start_offset):
            return None
        if not self._is_eligible(broker_id, follower.broker_epoch):
            return None
        return (*self.isr, broker_id)

    def shrunk(
        self, leader_end_offset: int, high_watermark: int, now_ms: float
    ) -> tuple[int, ...] | None:
        """Return the ISR without followers that have fallen behind, or None if all keep up."""
        if self.proposed is not None:
            return None
        max_lag_ms = self._max_lag_ms()
        kept = tuple(
            one
            for one in self.isr
            if one == self._leader
            or self._keeps_up(one, leader_end_offset, high_watermark, now_ms, max_lag_ms)
        )
        return None if kept == self.isr else kept

    def _keeps_up(
        self,
        broker_id: int,
        leader_end_offset: int,
        high_watermark: int,
        now_ms: float,
        max_lag_ms: float,
    ) -> bool:
        follower = self._followers.get(broker_id)
        if follower is None:
            return False
        if self._has_lost_records(broker_id, high_watermark):
            return False
        return follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms)
