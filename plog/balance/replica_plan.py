"""Choose brokers for replicas: remove them from brokers, separate racks, and make counts equal.

Replicas are balanced if no broker has more than one replica of a topic more than another broker,
and no more than one replica in total. Topics come first: a new broker then gets a part of each
topic and its load, and not only the smallest partitions of the cluster. Racks come before both: no
plan puts more replicas of a partition into the same rack than before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from plog.balance.leveling import Leveling
from plog.balance.placement import Placement, by_topic
from plog.error_base import PlogError
from plog.types import TopicPartition

_NAMED_MAX = 5
"""The number of partitions that an error names."""


class NotEnoughBrokers(PlogError):
    """A partition would have to give up a replica, because no broker is left for it."""


def leave_brokers(placement: Placement, leaving: Collection[int]) -> None:
    """Move the replicas on the brokers `leaving` to the brokers of `placement`, and no others.

    Raises NotEnoughBrokers if there are fewer brokers than replicas of a partition.
    """
    moving = {
        partition: [one for one in replicas if one in leaving]
        for partition, replicas in sorted(placement.replicas.items())
    }
    moving = {partition: sources for partition, sources in moving.items() if sources}
    usable = [broker for broker in placement.brokers if broker not in leaving]
    too_many = [
        partition
        for partition, sources in moving.items()
        if len(set(usable).difference(placement.replicas[partition])) < len(sources)
    ]
    if too_many:
        factor = max(len(placement.replicas[one]) for one in too_many)
        raise NotEnoughBrokers(
            f"cannot move the replicas of {_named(too_many)}: {factor} replicas need {factor}"
            f" brokers, but only {len(usable)} can be used; add brokers, or reduce the number of"
            " replicas with plog reassign-partitions"
        )
    for partition, sources in moving.items():
        for source in sources:
            target = _best_target(placement, usable, partition, source)
            placement.move(partition, source, target)


def _best_target(
    placement: Placement, usable: Iterable[int], partition: TopicPartition, source: int
) -> int:
    free = [broker for broker in usable if broker not in placement.replicas[partition]]
    return min(
        free,
        key=lambda broker: (
            placement.crowding(partition, source, broker),
            placement.topic_count(partition.topic, broker),
            placement.count(broker),
            broker,
        ),
    )


def separate_racks(placement: Placement) -> None:
    """Move replicas of partitions that could be in more racks than they are."""
    for partition in sorted(placement.replicas):
        while True:
            replicas = placement.replicas[partition]
            better = [
                (
                    placement.crowding(partition, source, target),
                    # From the fullest broker to the emptiest, so that no further move is needed.
                    placement.topic_count(partition.topic, target)
                    - placement.topic_count(partition.topic, source),
                    placement.count(target) - placement.count(source),
                    target,
                    source,
                )
                for source in replicas
                for target in placement.brokers
                if target not in replicas and placement.crowding(partition, source, target) < 0
            ]
            if not better:
                break
            *_, target, source = min(better)
            placement.move(partition, source, target)


def balance_replicas(placement: Placement) -> None:
    """Make the numbers of replicas of all brokers equal, first for each topic, then in total."""
    separate_racks(placement)
    before = None
    # A move can free a rack for a move that was not allowed before. Each move makes a topic more
    # equal, or the total without a change of any topic, so that the loop ends.
    while before != placement.replicas:
        before = {partition: list(some) for partition, some in placement.replicas.items()}
        for topic, partitions in by_topic(placement.replicas).items():
            _level_topic(placement, topic, partitions)
        _level_total(placement)


def _level_total(placement: Placement) -> None:
    def may_move(partition: TopicPartition, source: int, target: int) -> bool:
        # The topic must not become less balanced.
        return placement.topic_count(partition.topic, source) > placement.topic_count(
            partition.topic, target
        ) and placement.may_move(partition, source, target)

    Leveling(
        placement.brokers,
        count=placement.count,
        tie=lambda broker: 0,
        items=placement.movable,
        may_move=may_move,
        move=placement.move,
    ).run()


def _level_topic(placement: Placement, topic: str, partitions: Iterable[TopicPartition]) -> None:
    ordered = sorted((placement.size(each), each) for each in partitions)
    Leveling(
        placement.brokers,
        count=lambda broker: placement.topic_count(topic, broker),
        # Brokers with many replicas in total give away replicas first.
        tie=placement.count,
        items=lambda source, target: [x for x in ordered if source in placement.replicas[x[1]]],
        may_move=placement.may_move,
        move=placement.move,
    ).run()


def _named(partitions: Iterable[TopicPartition]) -> str:
    names = list(map(str, partitions))
    rest = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {rest} more partitions" if rest > 0 else "")
