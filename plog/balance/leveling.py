"""Make counts of brokers equal by moves between brokers: replicas, or leaders.

`Leveling` moves items from brokers with many items to brokers with few, until the counts differ by
at most 1, or until no sequence of allowed moves makes them more equal. Each step lowers the sum of
the squares of the counts, so the procedure ends. It makes no move that is not needed, and chooses
the smallest item that can move.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from plog.balance.placement import SizedPartition
from plog.types import TopicPartition


class Move(NamedTuple):
    """A partition whose replica or leadership moves between two brokers."""

    partition: TopicPartition
    source: int
    target: int


class Leveling:
    """One count of each broker, and the moves that change it.

    Args:
        brokers: the brokers whose counts become equal.
        count: the present count of a broker.
        tie: an order of brokers with the same count; items move from high to low values.
        items: what a broker may be able to give to another one, the smallest first; empty if
            nothing can move between them.
        may_move: whether an item can move from one broker to another.
        move: makes a move, after which `count` and `items` reflect it.
    """

    def __init__(
        self,
        brokers: Sequence[int],
        *,
        count: Callable[[int], int],
        tie: Callable[[int], int],
        items: Callable[[int, int], Iterable[SizedPartition]],
        may_move: Callable[[TopicPartition, int, int], bool],
        move: Callable[[TopicPartition, int, int], None],
    ) -> None:
        self._brokers = brokers
        self._count = count
        self._tie = tie
        self._items = items
        self._may_move = may_move
        self._move = move

    def run(self) -> None:
        """Make moves until nothing can be improved."""
        while True:
            step = self._direct_move()
            moves = [step] if step is not None else self._indirect_moves()
            if not moves:
                return
            for move in moves:
                self._move(*move)

    # -- one move -----------------------------------------------------------------------------

    def _direct_move(self) -> Move | None:
        """Return a move between a broker with too many or too few items and another one."""
        total = sum(map(self._count, self._brokers))
        least, rest = divmod(total, max(1, len(self._brokers)))
        most = least + (rest > 0)
        # With these bounds, no broker gives away an item that it has to get back later.
        full = [broker for broker in self._brokers if self._count(broker) > most]
        lacking = [broker for broker in self._brokers if self._count(broker) < least]
        below_most = [broker for broker in self._brokers if self._count(broker) < most]
        above_least = [broker for broker in self._brokers if self._count(broker) > least]
        for targets in (lacking, below_most):
            for source in sorted(full, key=self._order, reverse=True):
                found = self._smallest_move(source, targets)
                if found is not None:
                    return found[1]
        for target in sorted(lacking, key=self._order):
            found = min(
                (each for one in above_least if (each := self._smallest_move(one, [target]))),
                default=None,
            )
            if found is not None:
                return found[1]
        return None

    def _smallest_move(self, source: int, targets: Sequence[int]) -> tuple[int, Move] | None:
        """Return the smallest item that `source` can give to one of `targets`, with its size."""
        better = [one for one in targets if self._count(source) - self._count(one) >= 2]
        best: tuple[int, Move] | None = None
        for target in sorted(better, key=self._order):
            found = self._first_item(source, target)
            if found is not None and (best is None or found[0] < best[0]):
                best = found[0], Move(found[1], source, target)
        return best

    def _first_item(
        self, source: int, target: int, used: Container[TopicPartition] = ()
    ) -> SizedPartition | None:
        for size, partition in self._items(source, target):
            if partition not in used and self._may_move(partition, source, target):
                return size, partition
        return None

    def _order(self, broker: int) -> tuple[int, int, int]:
        return self._count(broker), self._tie(broker), broker

    # -- several moves ------------------------------------------------------------------------

    def _indirect_moves(self) -> list[Move]:
        """Return moves over other brokers, which take one item from a broker to another in effect.

        They are needed if racks do not allow a direct move.
        """
        for source in sorted(self._brokers, key=self._order, reverse=True):
            if self._count(source) - min(map(self._count, self._brokers)) < 2:
                return []
            moves = self._path_from(source)
            if moves:
                return moves
        return []

    def _path_from(self, source: int) -> list[Move]:
        """Return the moves from `source` to a broker with fewer items that copy the least data."""
        arrived: dict[int, list[Move]] = {}
        waiting: list[tuple[int, int, int, list[Move]]] = [(0, 0, source, [])]
        while waiting:
            cost, length, broker, moves = heapq.heappop(waiting)
            if broker in arrived:
                continue
            arrived[broker] = moves
            if self._count(source) - self._count(broker) >= 2:
                return moves
            used = {move.partition for move in moves}
            for target in self._brokers:
                if target in arrived:
                    continue
                # One partition cannot move twice: the first move may decide about the second.
                found = self._first_item(broker, target, used)
                if found is not None:
                    size, partition = found
                    longer = [*moves, Move(partition, broker, target)]
                    heapq.heappush(waiting, (cost + size, length + 1, target, longer))
        return []
