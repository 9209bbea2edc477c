"""``plog consumer-groups --reset-offsets``: compute new offsets for a group and commit them.

Without ``--execute``, the tool only prints the new offsets. Source: Kafka 4.3
GroupOffsetsResetter.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from plog.cli.consumer_groups.selection import group_names, parse_topic
from plog.cli.options import UsageError, is_given
from plog.cli.output import Table, print_json, show
from plog.cli.parser import fail
from plog.client.admin.group_offsets import GroupOffsetAdmin
from plog.client.admin.groups import GroupAdmin
from plog.client.admin.records import RecordAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import GroupState, OffsetSpec
from plog.client.network.cluster import Cluster
from plog.client.settings import durations
from plog.errors import GroupIdNotFound, LeaderNotAvailable, UnknownTopicOrPartition
from plog.types import TopicPartition

Offsets = dict[TopicPartition, int]

_TARGETS = (
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset",
    "--to-datetime",
    "--by-duration",
    "--shift-by",
    "--from-file",
)
_NO_OFFSET = -1


def add_reset_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the new offsets."""
    group = parser.add_argument_group("--reset-offsets: new offsets (specify exactly one)")
    group.add_argument("--to-earliest", action="store_true", help="the start of each log")
    group.add_argument("--to-latest", action="store_true", help="the end of each log")
    group.add_argument("--to-current", action="store_true", help="the committed offsets")
    group.add_argument("--to-offset", type=int, metavar="OFFSET", help="this offset")
    group.add_argument(
        "--to-datetime",
        type=datetime_ms,
        metavar="YYYY-MM-DDThh:mm:ss.sss",
        help="the first record at or after this time, in UTC unless it includes a time zone",
    )
    group.add_argument(
        "--by-duration",
        type=duration_ms,
        metavar="PnDTnHnMnS",
        help="the first record that is not older than this duration",
    )
    group.add_argument(
        "--shift-by",
        type=int,
        metavar="NUMBER",
        help="number of records to move forward, or back if negative",
    )
    group.add_argument(
        "--from-file",
        metavar="FILE",
        help="offsets from a CSV file: [group,]topic,partition,offset",
    )
    execution = parser.add_argument_group("--reset-offsets: execution")
    execution.add_argument(
        "--dry-run",
        action="store_true",
        help="print the new offsets without committing them (default)",
    )
    execution.add_argument("--execute", action="store_true", help="commit the new offsets")
    execution.add_argument(
        "--export", action="store_true", help="print the offsets as CSV for --from-file"
    )


def datetime_ms(text: str) -> int:
    """Return a date and time as milliseconds since 1970, for use as the type of an option.

    >>> datetime_ms("2026-01-01T00:00:00.500"), datetime_ms("2026-01-01T01:00:00+01:00")
    (1767225600500, 1767225600000)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    # Python also accepts a date without a time, and a space instead of the T; Kafka does not.
    if moment is None or "T" not in text:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time like 2026-01-31T23:59:59.999")
    # As in Kafka's tool, a time without a zone is in UTC.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Return an ISO 8601 duration in milliseconds, for use as the type of an option."""
    try:
        return durations.duration_ms(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration like P1DT12H30M5S") from None


def check_reset(arguments: argparse.Namespace, action: str) -> None:
    """Reject invalid combinations of options. Raises UsageError."""
    options = (*_TARGETS, "--dry-run", "--execute", "--export")
    given = [name for name in options if is_given(arguments, name)]
    if action != "--reset-offsets":
        if given:
            raise UsageError(f"{given[0]} requires --reset-offsets")
        return
    targets = [name for name in given if name in _TARGETS]
    if len(targets) != 1:
        raise UsageError(f"specify exactly one of {', '.join(_TARGETS)}")
    if arguments.dry_run and arguments.execute:
        raise UsageError("--dry-run and --execute cannot be combined")
    if not arguments.topic and not arguments.all_topics and arguments.from_file is None:
        raise UsageError("--reset-offsets requires --topic, --all-topics or --from-file")
    if arguments.topic and arguments.all_topics:
        raise UsageError("--all-topics and --topic cannot be combined")
    # Kafka's tool prints a similar warning: its default may become a prompt in a later release.
    if not arguments.dry_run and not arguments.execute:
        print(
            "plog: the new offsets are not committed; add --execute to commit them, or --dry-run"
            " to suppress this message",
            file=sys.stderr,
        )


async def reset_offsets(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Compute the new offsets, commit them with ``--execute``, and print them.

    The tool reports and skips groups with members, and groups without offsets in ``--from-file``;
    the exit code is then 1.
    """
    # The file is read first, so that an invalid line is reported before any offset changes.
    plan = _read_plan(arguments)
    code = 0
    moved: dict[str, Offsets] = {}
    for group in await group_names(cluster, arguments):
        state = await _state(cluster, group)
        # A member would continue at its current position, and later overwrite the new offsets.
        if state not in (GroupState.EMPTY, GroupState.DEAD):
            fail(
                f"cannot reset offsets for group '{group}': its state is {state}; stop its"
                " consumers first"
            )
            code, moved[group] = 1, {}
            continue
        if plan is not None and group not in plan:
            fail(f"--from-file does not contain offsets for group '{group}'")
            code, moved[group] = 1, {}
            continue
        offsets = await _new_offsets(cluster, group, arguments, plan)
        if arguments.execute and offsets:
            altered = await GroupOffsetAdmin(cluster).alter_group_offsets(group, offsets)
            altered.raise_first()
        moved[group] = offsets
    _show(moved, arguments)
    return code


async def _state(cluster: Cluster, group: str) -> GroupState:
    try:
        return (await GroupAdmin(cluster).describe_group(group)).state
    except GroupIdNotFound:  # Not an error: committing offsets creates the group.
        return GroupState.DEAD


# -- new offsets -------------------------------------------------------------------------------


async def _new_offsets(
    cluster: Cluster,
    group: str,
    arguments: argparse.Namespace,
    plan: Mapping[str, Offsets] | None,
) -> Offsets:
    if plan is not None:
        await _check_partitions(cluster, plan[group])
        return await _within_log(cluster, plan[group])
    partitions = await _scope(cluster, group, arguments)
    await _check_partitions(cluster, partitions)
    if arguments.to_offset is not None:
        return await _within_log(cluster, dict.fromkeys(partitions, arguments.to_offset))
    if arguments.shift_by is not None:
        current = await _committed(cluster, group)
        # As in Kafka's tool, a partition without a committed offset is an error.
        missing = sorted(str(each) for each in partitions if each not in current)
        if missing:
            raise UsageError(
                f"cannot apply --shift-by: group '{group}' has no offset for {', '.join(missing)}"
            )
        shifted = {each: current[each] + arguments.shift_by for each in partitions}
        return await _within_log(cluster, shifted)
    if arguments.to_current:
        # As in Kafka's tool, partitions without a committed offset are set to the end of the log.
        current = await _committed(cluster, group)
        uncommitted = [each for each in partitions if each not in current]
        known = {each: current[each] for each in partitions if each in current}
        return known | await _listed(cluster, uncommitted, OffsetSpec.LATEST)
    if arguments.to_datetime is not None:
        return await _by_time(cluster, partitions, arguments.to_datetime, arguments)
    if arguments.by_duration is not None:
        now_ms = time.time_ns() // 1_000_000
        # Negative timestamps have special meanings in ListOffsets, such as -1 for the end.
        time_ms = max(now_ms - arguments.by_duration, 0)
        return await _by_time(cluster, partitions, time_ms, arguments)
    to = OffsetSpec.EARLIEST if arguments.to_earliest else OffsetSpec.LATEST
    return await _listed(cluster, partitions, to)


async def _scope(
    cluster: Cluster, group: str, arguments: argparse.Namespace
) -> list[TopicPartition]:
    """Return the partitions that the options select."""
    if arguments.all_topics:
        return sorted(await _committed(cluster, group))
    partitions: list[TopicPartition] = []
    for text in arguments.topic:
        topic, numbers = parse_topic(text)
        if numbers is None:
            described = await TopicDescriptionAdmin(cluster).describe_topic(topic)
            numbers = [each.partition for each in described.partitions]
        partitions += [TopicPartition(topic, number) for number in numbers]
    # The options can name a partition twice, for example by `orders` and `orders:0`.
    return sorted(set(partitions))


async def _check_partitions(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    """Raise UnknownTopicOrPartition or LeaderNotAvailable for unusable partitions."""
    # For a partition without a leader, ListOffsets would be retried until the call times out.
    wanted = sorted(set(partitions))
    topics = sorted({partition.topic for partition in wanted})
    described = (await TopicDescriptionAdmin(cluster).describe_topics(topics)).raise_first()
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in described.values()
        for each in topic.partitions
    }
    absent = [str(each) for each in wanted if each not in leaders]
    if absent:
        raise UnknownTopicOrPartition(f"partitions {', '.join(absent)} do not exist")
    leaderless = [str(each) for each in wanted if leaders[each] is None]
    if leaderless:
        raise LeaderNotAvailable(f"partitions {', '.join(leaderless)} have no leader")


async def _committed(cluster: Cluster, group: str) -> Offsets:
    offsets = await GroupOffsetAdmin(cluster).group_offsets(group)
    return {partition: each.offset for partition, each in offsets.items() if each is not None}


async def _listed(
    cluster: Cluster, partitions: Iterable[TopicPartition], at: OffsetSpec | int
) -> Offsets:
    specs = dict.fromkeys(partitions, at)
    if not specs:
        return {}
    found = (await RecordAdmin(cluster).list_offsets(specs)).raise_first()
    return {partition: each.offset for partition, each in found.items()}


async def _by_time(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    time_ms: int,
    arguments: argparse.Namespace,
) -> Offsets:
    found = await _listed(cluster, partitions, time_ms)
    # As in Kafka's tool, the warning is the same for partitions in which all records are older.
    later = [partition for partition, offset in found.items() if offset == _NO_OFFSET]
    for topic, number in later:
        print(
            f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known "
            "offset.",
            file=sys.stderr if arguments.json or arguments.export else sys.stdout,
        )
    return found | await _listed(cluster, later, OffsetSpec.LATEST)


async def _within_log(cluster: Cluster, offsets: Offsets) -> Offsets:
    """Return the offsets, limited to the ranges of the logs; print a warning for each change."""
    # With an offset outside the log, a consumer would apply auto.offset.reset instead.
    first = await _listed(cluster, offsets, OffsetSpec.EARLIEST)
    last = await _listed(cluster, offsets, OffsetSpec.LATEST)
    bounded = {each: min(max(offset, first[each]), last[each]) for each, offset in offsets.items()}
    for partition, offset in bounded.items():
        if offset != offsets[partition]:
            print(
                f"plog: warning: offset {offsets[partition]} of {partition} is outside its log, "
                f"which ranges from {first[partition]} to {last[partition]}: using {offset}",
                file=sys.stderr,
            )
    return bounded


# -- CSV ---------------------------------------------------------------------------------------


def _read_plan(arguments: argparse.Namespace) -> dict[str, Offsets] | None:
    if arguments.from_file is None:
        return None
    # The csv module requires unchanged line endings.
    with open(arguments.from_file, encoding="utf-8", newline="") as file:
        return parse_plan(file.read(), arguments.group)


def parse_plan(text: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """Return the offsets in a CSV file, by group. Raises UsageError.

    If `groups` has exactly one group, lines need not contain the group.

    >>> parse_plan("orders,0,5\\n", ["billing"])
    {'billing': {TopicPartition(topic='orders', partition=0): 5}}
    """
    plan: dict[str, Offsets] = {}
    # Names of groups can contain commas, in quotes, so split() would not be enough.
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and len(groups) == 1:
            cells.insert(0, groups[0])
        try:
            group, topic, partition, offset = cells
            plan.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            columns = f"{'' if len(groups) == 1 else 'group,'}topic,partition,offset"
            raise UsageError(
                f"--from-file, line {number}: '{','.join(row)}' is not {columns}"
            ) from None
    return plan


def _csv(moved: Mapping[str, Offsets], *, with_group: bool) -> str:
    out = io.StringIO()
    # By default, the csv module ends lines with a carriage return and a line feed.
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in moved.items():
        for partition, offset in sorted(offsets.items()):
            writer.writerow([*([group] if with_group else []), *partition, offset])
    return out.getvalue()


# -- output ------------------------------------------------------------------------------------


def _show(moved: Mapping[str, Offsets], arguments: argparse.Namespace) -> None:
    if arguments.export:
        # As in Kafka's tool, lines omit the group if the command line names exactly one group.
        sys.stdout.write(_csv(moved, with_group=len(arguments.group) != 1))
        return
    rows = [
        (group, *partition, offset)
        for group, offsets in moved.items()
        for partition, offset in sorted(offsets.items())
    ]
    if arguments.json:
        print_json(
            [
                dict(zip(("group", "topic", "partition", "new_offset"), row, strict=True))
                for row in rows
            ]
        )
        return
    show(
        lambda: reset_lines(list(moved), rows),
        lambda: [Table(("GROUP", "TOPIC", "PARTITION", "NEW OFFSET"), rows)],
        list,  # Never called, because the JSON was printed above.
        as_json=False,
    )


def reset_lines(groups: Sequence[str], rows: Sequence[tuple[str, str, int, int]]) -> list[str]:
    """Return an empty line, followed by the lines of Kafka's table."""
    if not groups:
        return [""]
    widths = [max([15, *map(len, groups)]), max([15, *(len(row[1]) for row in rows)]), 10]
    lines = [""]
    for *cells, offset in (("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows):
        padded = [str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append(" ".join([*padded, str(offset)]))
    return lines
