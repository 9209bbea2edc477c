"""A plan: the replicas of partitions before and after it, as tables and as a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plog.balance.leader_plan import changed, leader_counts
from plog.balance.placement import Assignments, moved_bytes
from plog.cli.output import Table
from plog.cli.reassign_partitions.reassignment_file import as_document
from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """New replicas of partitions, preferred leaders first."""

    before: Assignments
    after: Assignments
    sizes: Mapping[TopicPartition, int]
    racks: Mapping[int, str | None]
    """The available brokers, with their racks."""

    @property
    def changes(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The new replicas of the partitions that change."""
        return changed(self.before, self.after)

    @property
    def copied(self) -> dict[TopicPartition, int]:
        """The bytes that are copied for each partition that gets replicas on other brokers."""
        return moved_bytes(self.before, self.after, self.sizes)

    def summary(self) -> str:
        """Return what the plan changes, in one line."""
        changes, copied = self.changes, self.copied
        if not changes:
            return "The replicas and preferred leaders are already distributed as planned."
        reordered = len(changes) - len(copied)
        parts = []
        if copied:
            size = size_text(sum(copied.values()))
            parts.append(f"move replicas of {_partitions(len(copied))}, which copies {size}")
        if reordered:
            parts.append(f"change only the preferred leaders of {_partitions(reordered)}")
        return "Plan: " + "; ".join(parts) + "."

    def tables(self) -> list[Table]:
        """Return a table of the partitions that change, and a table of the brokers."""
        copied = self.copied
        tables = [
            Table(
                ("TOPIC", "PARTITION", "COPIED BYTES", "REPLICAS", "NEW REPLICAS"),
                [
                    (
                        *partition,
                        copied.get(partition, 0),
                        _joined(self.before[partition]),
                        _joined(replicas),
                    )
                    for partition, replicas in self.changes.items()
                ],
            ),
            Table(
                ("BROKER", "RACK", "REPLICAS", "LEADERS", "NEW REPLICAS", "NEW LEADERS"),
                [
                    (
                        each["broker"],
                        each["rack"],
                        each["replicas"],
                        each["leaders"],
                        each["new_replicas"],
                        each["new_leaders"],
                    )
                    for each in self._brokers()
                ],
            ),
        ]
        return tables if self.changes else tables[1:]

    def as_data(self) -> dict[str, object]:
        """Return the plan for ``--json``; ``--reassignment-json-file`` accepts the document."""
        copied = self.copied
        return {
            **as_document(self.changes),
            "current": as_document({one: self.before[one] for one in self.changes}),
            "copied_bytes": sum(copied.values()),
            "brokers": self._brokers(),
        }

    def _brokers(self) -> list[dict[str, object]]:
        counts = [_replica_counts(each) for each in (self.before, self.after)]
        leaders = [leader_counts(each) for each in (self.before, self.after)]
        return [
            {
                "broker": broker,
                "rack": self.racks.get(broker),
                "replicas": counts[0][broker],
                "leaders": leaders[0][broker],
                "new_replicas": counts[1][broker],
                "new_leaders": leaders[1][broker],
            }
            # Brokers that are not available may have replicas, too.
            for broker in sorted(self.racks.keys() | counts[0].keys())
        ]


def _replica_counts(assignments: Assignments) -> Counter[int]:
    return Counter(broker for replicas in assignments.values() for broker in replicas)


def size_text(size_bytes: int) -> str:
    """Return a size with a binary unit.

    >>> size_text(500), size_text(3 << 29)
    ('500 B', '1.5 GiB')
    """
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
