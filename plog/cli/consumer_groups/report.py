"""Reports of ``plog consumer-groups --describe``: offsets and lag, members, or states.

Columns and widths match Kafka's tool. Source: Kafka 4.3 ConsumerGroupCommand.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from plog.cli.consumer_groups.selection import group_names
from plog.cli.output import Table, show
from plog.client.admin.group_offsets import GroupOffsetAdmin
from plog.client.admin.groups import GroupAdmin
from plog.client.admin.records import RecordAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import (
    GroupDescription,
    GroupState,
    MemberDescription,
    OffsetSpec,
)
from plog.client.network.cluster import Cluster
from plog.client.values import OffsetAndMetadata
from plog.errors import GroupIdNotFound
from plog.types import TopicPartition

T = TypeVar("T")

_REBALANCING = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)


class OffsetRow(NamedTuple):
    """The progress of a group in one partition; unknown values are None."""

    group: str
    topic: str
    partition: int
    leader_epoch: int | None
    offset: int | None
    end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Return the number of records between the committed offset and the end."""
        if self.offset is None or self.end_offset is None:
            return None
        # As in Kafka's tool, the lag can be negative: after an unclean leader election, the log can
        # end before the committed offset.
        return self.end_offset - self.offset


async def describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the requested reports. Raises the first error if a group cannot be described."""
    names = sorted(await group_names(cluster, arguments))
    described = (await GroupAdmin(cluster).describe_groups(names)).raise_first()
    for name, group in described.items():
        # Before version 6 of DescribeGroups, the state of an unknown group is Dead (KIP-1043).
        if group.state is GroupState.DEAD:
            raise GroupIdNotFound(f"consumer group '{name}' does not exist")
    groups = list(described.values())
    if arguments.members:
        _show_members(groups, arguments)
    elif arguments.state is not None:
        _show_states(groups, arguments)
    else:
        rows = {group.group_id: await _offset_rows(cluster, group) for group in groups}
        _show_offsets(groups, rows, arguments)
    return 0


def _warn_about_state(group: GroupDescription) -> None:
    """Print a warning on standard error if a group has no members or is rebalancing."""
    # Standard error keeps the warnings out of the table, which scripts parse.
    if group.state is GroupState.EMPTY:
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state in _REBALANCING:
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


# -- offsets -----------------------------------------------------------------------------------


async def _offset_rows(cluster: Cluster, group: GroupDescription) -> list[OffsetRow]:
    """Return a row for each assigned partition and each partition with a committed offset."""
    committed = await GroupOffsetAdmin(cluster).group_offsets(group.group_id)
    offsets = {partition: offset for partition, offset in committed.items() if offset is not None}
    # As in Kafka's tool, members with the most partitions come first, and unassigned partitions
    # come last.
    members = sorted(group.members, key=lambda member: -len(member.assignment))
    assigned = [(member, sorted(member.assignment)) for member in members]
    owned = {partition for _, some in assigned for partition in some}
    unowned = sorted(partition for partition in offsets if partition not in owned)
    # The ends are read after the offsets. In the other order, a group that is reading could seem to
    # be ahead of the log.
    ends = await _end_offsets(cluster, {*owned, *unowned})
    rows = [
        _offset_row(group.group_id, partition, offsets, ends, member)
        for member, some in assigned
        for partition in some
    ]
    return rows + [_offset_row(group.group_id, x, offsets, ends, None) for x in unowned]


def _offset_row(
    group: str,
    partition: TopicPartition,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    member: MemberDescription | None,
) -> OffsetRow:
    committed = offsets.get(partition)
    return OffsetRow(
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        leader_epoch=committed.leader_epoch if committed else None,
        offset=committed.offset if committed else None,
        end_offset=ends.get(partition),
        member=member,
    )


async def _end_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return end offsets, except for partitions without a leader and deleted partitions."""
    topics = sorted({partition.topic for partition in partitions})
    described = (await TopicDescriptionAdmin(cluster).describe_topics(topics)).values_by_key
    led = {
        TopicPartition(topic.name, each.partition)
        for topic in described.values()
        for each in topic.partitions
        if each.leader is not None
    }
    # For a partition without a leader, the client would retry the lookup until the call times out.
    specs = {partition: OffsetSpec.LATEST for partition in partitions if partition in led}
    if not specs:
        return {}
    # Errors are not raised: a partition that has just lost its leader has an unknown end.
    found = await RecordAdmin(cluster).list_offsets(specs)
    return {partition: each.offset for partition, each in found.values_by_key.items()}


def _show_offsets(
    groups: Sequence[GroupDescription],
    rows: Mapping[str, list[OffsetRow]],
    arguments: argparse.Namespace,
) -> None:
    def lines() -> Iterator[str]:
        for group in groups:
            _warn_about_state(group)
            if rows[group.group_id]:
                yield from offset_lines(rows[group.group_id], verbose=arguments.verbose)

    def tables() -> Iterator[Table]:
        for group in groups:
            # On a terminal, both streams are the same, so the warnings come before the table.
            _warn_about_state(group)
        yield _offset_table([row for group in groups for row in rows[group.group_id]])

    show(
        lines,
        tables,
        lambda: [
            {
                "group": group.group_id,
                "state": str(group.state),
                "partitions": [_offset_data(row) for row in rows[group.group_id]],
            }
            for group in groups
        ],
        as_json=arguments.json,
    )


def offset_lines(rows: Sequence[OffsetRow], *, verbose: bool) -> Iterator[str]:
    """Yield an empty line, then the lines of Kafka's table for one group."""
    cells = [_offset_cells(row) for row in rows]
    # The last column is not padded, hence its width of 0.
    head = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET",
            "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]  # fmt: skip
    widths = [15, 15, 10, 15, 15, 15, 15, 15, 15, 0]
    # As in Kafka's tool, only the columns with names become wider than their minimum.
    for column in (0, 1, 7, 8):
        widths[column] = max([widths[column], *(len(row[column]) for row in cells)])
    if not verbose:  # Kafka's tool prints LEADER-EPOCH, column 3, only with --verbose.
        head, widths = _without(head, 3), _without(widths, 3)
        cells = [_without(row, 3) for row in cells]
    yield ""
    for row in [head, *cells]:
        yield " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def _without(cells: Sequence[T], column: int) -> list[T]:
    return [*cells[:column], *cells[column + 1 :]]


def _offset_cells(row: OffsetRow) -> list[str]:
    member = row.member
    return [
        row.group,
        row.topic,
        str(row.partition),
        _cell(row.leader_epoch),
        _cell(row.offset),
        _cell(row.end_offset),
        _cell(row.lag),
        member.member_id if member else "-",
        member.host if member else "-",
        member.client_id if member else "-",
    ]


def _offset_table(rows: Sequence[OffsetRow]) -> Table:
    return Table(
        # Ids of members are omitted: they consist of the client id and a UUID, and would not fit.
        ("GROUP", "TOPIC", "PARTITION", "OFFSET", "END", "LAG", "CLIENT", "HOST"),
        [
            (
                row.group,
                row.topic,
                row.partition,
                row.offset,
                row.end_offset,
                row.lag,
                row.member and row.member.client_id,
                row.member and row.member.host,
            )
            for row in rows
        ],
    )


def _offset_data(row: OffsetRow) -> dict[str, object]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "leader_epoch": row.leader_epoch,
        "end_offset": row.end_offset,
        "lag": row.lag,
        "member_id": row.member and row.member.member_id,
        "host": row.member and row.member.host,
        "client_id": row.member and row.member.client_id,
    }


# -- members -----------------------------------------------------------------------------------


def _show_members(groups: Sequence[GroupDescription], arguments: argparse.Namespace) -> None:
    def lines() -> Iterator[str]:
        for group in groups:
            _warn_about_state(group)
            yield from member_lines(group, verbose=arguments.verbose)

    show(
        lines,
        lambda: [
            Table(
                ("GROUP", "CLIENT", "HOST", "INSTANCE", "PARTITIONS", "MEMBER"),
                [
                    (
                        group.group_id,
                        member.client_id,
                        member.host,
                        member.group_instance_id,
                        assignment_text(member.assignment)
                        if arguments.verbose
                        else len(member.assignment),
                        member.member_id,
                    )
                    for group in groups
                    for member in group.members
                ],
            )
        ],
        lambda: [
            {"group": group.group_id, "members": [_member_data(x) for x in group.members]}
            for group in groups
        ],
        as_json=arguments.json,
    )


def member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    """Yield an empty line, then the lines of Kafka's table for one group's members."""
    # Kafka's tool prints GROUP-INSTANCE-ID only if the group has a static member.
    static = any(member.group_instance_id for member in group.members)
    columns = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [15, 15, 17, 15, 15, 15]
    rows = [
        [
            group.group_id,
            member.member_id,
            member.group_instance_id or "",
            member.host,
            member.client_id,
            str(len(member.assignment)),
        ]
        for member in group.members
    ]
    for column in range(5):  # All columns except #PARTITIONS.
        widths[column] = max([widths[column], *(len(row[column]) for row in rows)])
    if not static:
        columns, widths = _without(columns, 2), _without(widths, 2)
        rows = [_without(row, 2) for row in rows]
    # The first entry belongs to the header.
    more: list[list[str]] = [[] for _ in range(len(rows) + 1)]
    if verbose:
        more = _assignment_columns(group)
    yield ""
    for row, extra in zip([columns, *rows], more, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield " ".join([*cells, " ".join(extra)])


def _assignment_columns(group: GroupDescription) -> list[list[str]]:
    """Return the columns for ``--verbose``; in classic groups, only the assignment is known."""
    rows = [
        [
            _cell(member.epoch),
            assignment_text(member.assignment) or "-",
            _cell(group.assignment_epoch),
            assignment_text(member.target_assignment or ()) or "-",
        ]
        for member in group.members
    ]
    head = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    widths = [15, max([20, *(len(x[1]) for x in rows)]), 15, max([20, *(len(x[3]) for x in rows)])]
    return [
        [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        for row in [head, *rows]
    ]


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as text, grouped by topic.

    >>> assignment_text([TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)])
    'a:0,2;b:1'
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        numbers[topic].append(number)
    # Without spaces, a program can split a line of the table at white space.
    return ";".join(
        f"{topic}:{','.join(map(str, sorted(some)))}" for topic, some in sorted(numbers.items())
    )


def _member_data(member: MemberDescription) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [
            {"topic": topic, "partition": number} for topic, number in sorted(member.assignment)
        ],
    }


# -- states ------------------------------------------------------------------------------------


def _show_states(groups: Sequence[GroupDescription], arguments: argparse.Namespace) -> None:
    def lines() -> Iterator[str]:
        for group in groups:
            _warn_about_state(group)
            yield from state_lines(group, verbose=arguments.verbose)

    show(
        lines,
        lambda: [
            Table(
                ("GROUP", "STATE", "MEMBERS", "STRATEGY", "COORDINATOR"),
                [
                    (
                        group.group_id,
                        group.state,
                        len(group.members),
                        group.protocol or None,
                        group.coordinator.id,
                    )
                    for group in groups
                ],
            )
        ],
        lambda: [
            {
                "group": group.group_id,
                "state": str(group.state),
                "coordinator": group.coordinator.id,
                "assignment_strategy": group.protocol or None,
                "members": len(group.members),
            }
            for group in groups
        ],
        as_json=arguments.json,
    )


def state_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    """Yield an empty line, then the lines of Kafka's table for one group's state."""
    broker = group.coordinator
    # Kafka's tool also prints two spaces here.
    coordinator = f"{broker.host}:{broker.port}  ({broker.id})"
    widths = [max(15, len(group.group_id)), max(25, len(coordinator)), 20, 20]
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row = [group.group_id, coordinator, group.protocol or "-", str(group.state)]
    if verbose:
        head += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [_cell(group.epoch), _cell(group.assignment_epoch)]
        widths += [15, 25]
    yield ""
    for cells, last in ((head, "#MEMBERS"), (row, str(len(group.members)))):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        yield " ".join([*padded, last])
