"""Entry point of ``plog consumer-groups``: list, describe and delete groups, and reset offsets.

report.py prints descriptions; offset_reset.py computes new offsets.
Source: Kafka 4.3 ConsumerGroupCommand.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from plog.cli.admin_client import run_admin
from plog.cli.consumer_groups.offset_reset import add_reset_options, check_reset, reset_offsets
from plog.cli.consumer_groups.selection import CONSUMER, group_names, parse_topic
from plog.cli.options import (
    UsageError,
    add_admin_options,
    comma_list,
    is_given,
    one_of,
    only_with,
    positive,
)
from plog.cli.output import Table, print_json, print_outcome, show
from plog.cli.parser import add_examples, fail
from plog.client.admin.group_offsets import GroupOffsetAdmin
from plog.client.admin.groups import GroupAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import GroupState
from plog.client.network.cluster import Cluster
from plog.errors import KafkaError
from plog.types import TopicPartition

_ACTIONS = (
    "--list",
    "--describe",
    "--delete",
    "--reset-offsets",
    "--delete-offsets",
    "--validate-regex",
)
_TYPES = ("classic", CONSUMER)
# The states of classic groups, and those of the consumer protocol (KIP-848).
_STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance",
           "Reconciling", "Stable")  # fmt: skip
# Constructs that Python supports but RE2 does not: lookaround, backreferences and possessive
# quantifiers. Brokers match the patterns of subscriptions with RE2 (KIP-848).
_NOT_IN_RE2 = re.compile(r"\(\?<?[=!]|\(\?P=|\\[1-9]|[*+?}]\+")


def configure(parser: argparse.ArgumentParser) -> None:
    """List, describe and delete consumer groups, and reset their offsets."""
    add_admin_options(parser, required=False)
    actions = parser.add_argument_group("actions (specify exactly one)")
    actions.add_argument("--list", action="store_true", help="list groups")
    actions.add_argument(
        "--describe", action="store_true", help="describe groups: offsets, members or state"
    )
    actions.add_argument("--delete", action="store_true", help="delete groups without members")
    actions.add_argument(
        "--reset-offsets", action="store_true", help="reset offsets of groups without members"
    )
    actions.add_argument(
        "--delete-offsets", action="store_true", help="delete a group's offsets for specific topics"
    )
    actions.add_argument(
        "--validate-regex", metavar="REGEX", help="check whether brokers accept this pattern"
    )
    _add_scope(parser)
    _add_description_options(parser)
    add_reset_options(parser)
    _add_examples(parser)
    parser.set_defaults(run=run)


def _add_scope(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scope")
    group.add_argument(
        "--group", action="append", default=[], metavar="GROUP", help="a group; may be repeated"
    )
    group.add_argument("--all-groups", action="store_true", help="all groups")
    group.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,...]",
        help="a topic, optionally with partitions; may be repeated",
    )
    group.add_argument(
        "--all-topics", action="store_true", help="all topics for which the group has offsets"
    )
    group.add_argument(
        "--timeout",
        type=positive,
        default=30_000,
        metavar="MS",
        dest="timeout_ms",
        help="timeout in milliseconds (default: %(default)s)",
    )


def _add_description_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("contents")
    group.add_argument(
        "--offsets", action="store_true", help="--describe: offsets and lag (the default)"
    )
    group.add_argument("--members", action="store_true", help="--describe: the members")
    group.add_argument(
        "--state",
        nargs="?",
        # An empty text means that the option has no value, None that it is missing.
        const="",
        metavar="STATE,...",
        help="--describe: show group states; --list: show them, or list groups in these states",
    )
    group.add_argument(
        "--type",
        nargs="?",
        const="",
        metavar="TYPE,...",
        help="--list: print types, or list only groups of these types",
    )
    group.add_argument(
        "--verbose", action="store_true", help="--describe: print additional columns"
    )


def _add_examples(parser: argparse.ArgumentParser) -> None:
    server = "plog consumer-groups --bootstrap-server localhost:9092"
    add_examples(
        parser,
        ("list the groups and their states", f"{server} --list --state"),
        ("show a group's lag", f"{server} --describe --group billing"),
        (
            "preview a reset to yesterday",
            f"{server} --reset-offsets --group billing --topic orders --by-duration P1D --dry-run",
        ),
        (
            "restart from the beginning",
            f"{server} --reset-offsets --group billing --all-topics --to-earliest --execute",
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the requested action."""
    action = one_of(arguments, _ACTIONS)
    if action == "--validate-regex":
        # This is the only action without a cluster, hence the parser does not require a server.
        return validate_regex(arguments.validate_regex)
    if arguments.bootstrap_servers is None:
        raise UsageError("no server specified; use --bootstrap-server HOST:PORT")
    check(arguments, action)
    match action:
        case "--list":
            return run_admin(arguments, lambda cluster: list_groups(cluster, arguments))
        case "--describe":
            # Imported here because other actions do not need it.
            from plog.cli.consumer_groups.report import describe

            return run_admin(arguments, lambda cluster: describe(cluster, arguments))
        case "--delete":
            return run_admin(arguments, lambda cluster: delete(cluster, arguments))
        case "--delete-offsets":
            return run_admin(arguments, lambda cluster: delete_offsets(cluster, arguments))
    return run_admin(arguments, lambda cluster: reset_offsets(cluster, arguments))


def check(arguments: argparse.Namespace, action: str) -> None:
    """Reject invalid combinations of options. Raises UsageError."""
    only_with(arguments, ["--describe"], "--members", "--offsets", "--verbose")
    only_with(arguments, ["--describe", "--list"], "--state")
    only_with(arguments, ["--list"], "--type")
    only_with(arguments, ["--reset-offsets", "--delete-offsets"], "--topic")
    only_with(arguments, ["--reset-offsets"], "--all-topics")
    if action == "--list" and (arguments.group or arguments.all_groups):
        raise UsageError("--list lists all groups; use --describe --group for one group")
    if arguments.group and arguments.all_groups:
        raise UsageError("--all-groups and --group cannot be combined")
    if action != "--list" and not arguments.group and not arguments.all_groups:
        raise UsageError(f"{action} requires --group or --all-groups")
    if action == "--describe":
        reports = [x for x in ("--members", "--offsets", "--state") if is_given(arguments, x)]
        # Each report has its own columns, so they would not fit one table.
        if len(reports) > 1:
            raise UsageError(f"--describe accepts only one of {', '.join(reports)}")
        # For --describe, the option selects a report. Only --list filters by states.
        if arguments.state:
            raise UsageError("--describe --state does not accept states")
    if action == "--delete-offsets" and (len(arguments.group) != 1 or not arguments.topic):
        raise UsageError("--delete-offsets requires one --group, and at least one --topic")
    check_reset(arguments, action)


def validate_regex(pattern: str) -> int:
    """Print whether brokers accept a pattern; the exit code is always 0."""
    problem = None
    try:
        re.compile(pattern)
    except re.error as error:
        problem = str(error)
    found = _NOT_IN_RE2.search(pattern)
    if problem is None and found is not None:
        problem = f"RE2 does not support `{found[0]}`"
    if problem is None:
        print(f"The regular expression `{pattern}` is valid.")
    else:
        print(f"The regular expression `{pattern}` is invalid: {problem}.")
    return 0


# -- list --------------------------------------------------------------------------------------


async def list_groups(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--list``."""
    states, types = states_of(arguments.state or ""), types_of(arguments.type or "")
    # Brokers filter by state since KIP-518, and by type since KIP-848.
    listed = await GroupAdmin(cluster).list_groups(states=states, types=types)
    # Groups with other protocol types, such as the workers of Kafka Connect, do not commit offsets.
    # The protocol type of a group that has committed offsets but never had members is empty.
    groups = [group for group in listed.values() if group.protocol_type in ("", CONSUMER)]
    columns = ["GROUP"]
    if arguments.type is not None:
        columns.append("TYPE")
    if arguments.state is not None:
        columns.append("STATE")
    rows = []
    for group in groups:
        # Brokers without KIP-848 do not return the type.
        cells = {"GROUP": group.group_id, "TYPE": (group.type or "Unknown").capitalize(),
                 "STATE": str(group.state or GroupState.UNKNOWN)}  # fmt: skip
        rows.append([cells[column] for column in columns])
    show(
        lambda: (row[0] for row in rows) if len(columns) == 1 else _padded(columns, rows),
        lambda: [Table(columns, rows)],
        lambda: [
            {
                "group": group.group_id,
                "protocol_type": group.protocol_type,
                "state": None if group.state is None else str(group.state),
                "type": group.type,
            }
            for group in groups
        ],
        as_json=arguments.json,
    )
    return 0


def _padded(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with Kafka's minimum column widths."""
    width = max([15, *(len(row[0]) for row in rows)]) + 10
    return [
        " ".join([row[0].ljust(width), *(cell.ljust(20) for cell in row[1:])])
        for row in [columns, *rows]
    ]


def states_of(text: str) -> list[str]:
    """Return the states in a list, ignoring case. Raises UsageError.

    >>> states_of("stable, EMPTY")
    ['Stable', 'Empty']
    """
    known = {state.lower(): state for state in _STATES}
    named = comma_list(text)
    unknown = [name for name in named if name.lower() not in known]
    if unknown:
        raise UsageError(f"unknown state {', '.join(unknown)}; use {', '.join(_STATES)}")
    return [known[name.lower()] for name in named]


def types_of(text: str) -> list[str]:
    """Return the group types in a list, ignoring case. Raises UsageError."""
    named = [name.lower() for name in comma_list(text)]
    unknown = [name for name in named if name not in _TYPES]
    if unknown:
        raise UsageError(f"unknown type {', '.join(unknown)}; use {', '.join(_TYPES)}")
    return named


# -- delete ------------------------------------------------------------------------------------


async def delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--delete``; return 1 if a group could not be deleted."""
    groups = await group_names(cluster, arguments)
    done = await GroupAdmin(cluster).delete_groups(groups)
    if arguments.json:
        errors = {group: error.message for group, error in done.errors.items()}
        print_json({"deleted": list(done.values_by_key), "errors": errors})
        return 1 if errors else 0
    deleted = ", ".join(f"'{group}'" for group in done.values_by_key)
    if not done.errors:
        print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return 0
    print("\nError: Deletion of some consumer groups failed:")
    for group, error in done.errors.items():
        print(f"* Group '{group}' could not be deleted due to: {error.message}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {deleted}")
    return 1


async def delete_offsets(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--delete-offsets``; return 1 if an offset could not be deleted."""
    # `check` has ensured that there is exactly one group.
    [group] = arguments.group
    partitions: list[TopicPartition] = []
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    for text in arguments.topic:
        topic, numbers = parse_topic(text)
        if numbers is not None:
            partitions += [TopicPartition(topic, number) for number in numbers]
            continue
        # Without partition numbers, a topic stands for all of its partitions.
        try:
            described = await TopicDescriptionAdmin(cluster).describe_topic(topic)
        except KafkaError as error:
            # The partitions are unknown; a negative number is printed as "-".
            outcomes[TopicPartition(topic, -1)] = error
            continue
        partitions += [TopicPartition(topic, each.partition) for each in described.partitions]
    if partitions:
        admin = GroupOffsetAdmin(cluster)
        outcomes |= await admin.delete_group_offsets(group, partitions)
    failed = [error for error in outcomes.values() if error is not None]
    if failed:
        fail("some offsets could not be deleted; see the list")
    elif not arguments.json:
        print(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        {"topic": topic, "partition": number, "error": error and error.message}
        for (topic, number), error in sorted(outcomes.items())
    ]
    result = {"group": group, "partitions": rows}
    print_outcome("\n".join(_deletion_lines(outcomes)), result, as_json=arguments.json)
    return 1 if failed else 0


def _deletion_lines(outcomes: dict[TopicPartition, KafkaError | None]) -> list[str]:
    width = max([15, *(len(partition.topic) for partition in outcomes)])
    rows = [("TOPIC", "PARTITION", "STATUS")]
    for (topic, number), error in sorted(outcomes.items()):
        status = "Successful" if error is None else f"Error: {error.message}"
        rows.append((topic, "-" if number < 0 else str(number), status))
    return ["", *(f"{a.ljust(width)} {b.ljust(10)} {c.ljust(15)}" for a, b, c in rows)]
