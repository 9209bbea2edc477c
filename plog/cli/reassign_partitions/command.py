"""Entry point of ``plog reassign-partitions``: the actions of Kafka's tool.

``--generate`` uses plog's planner, which moves fewer replicas than Kafka's random placement.
Everything else has the output of Kafka 4.3 ReassignPartitionsCommand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping

from plog.cli.admin_client import run_admin
from plog.cli.json_file import duplicates
from plog.cli.options import (
    UsageError,
    add_bootstrap_controller_option,
    add_bootstrap_option,
    add_command_config_option,
    add_json_option,
    is_given,
    not_negative,
    number_list,
    one_of,
    only_with,
)
from plog.cli.output import Table, print_json, show
from plog.cli.parser import add_examples
from plog.cli.reassign_partitions.available_brokers import available_racks
from plog.cli.reassign_partitions.log_dir_moves import (
    check_supported,
    current_log_dirs,
    find_log_dir_moves,
    start_log_dir_moves,
)
from plog.cli.reassign_partitions.proposal import generate
from plog.cli.reassign_partitions.reassignment_file import (
    REASSIGNMENT_FORM,
    TOPICS_FORM,
    Reassignments,
    as_document,
    as_json,
    read_reassignments,
    read_topics,
)
from plog.cli.reassign_partitions.throttles import (
    clear_broker_throttles,
    clear_topic_throttles,
    proposed_moves,
    set_log_dir_throttle,
    set_throttle,
)
from plog.cli.reassign_partitions.verification import (
    PartitionState,
    current_replicas,
    find_partition_states,
)
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.partitions import PartitionAdmin
from plog.client.admin.values import Reassignment
from plog.client.network.cluster import Cluster
from plog.errors import KafkaError
from plog.types import TopicPartition

_ACTIONS = ("--generate", "--execute", "--verify", "--cancel", "--list")
_FROM_FILE = ("--execute", "--verify", "--cancel")
_MOVE_TIMEOUT_MS = 10_000
_SAVE_THIS = "Save this to use as the --reassignment-json-file option during rollback"
_ONGOING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to"
    " override this and create a new partition assignment in addition to the existing one. The"
    " --additional flag can also be used to change the throttle by resubmitting the current"
    " reassignment."
)
_RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the"
    " throttle is removed."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Move the replicas of partitions to other brokers, and limit and observe the moves."""
    add_bootstrap_option(parser, required=False)
    add_bootstrap_controller_option(parser)
    add_command_config_option(parser)
    add_json_option(parser)
    _add_actions(parser)
    _add_options(parser)
    add_examples(
        parser,
        (
            "propose new replicas on brokers 1, 2, 3 and 4, and print the current ones",
            "plog reassign-partitions --bootstrap-server localhost:9092 --generate"
            " --topics-to-move-json-file topics.json --broker-list 1,2,3,4",
        ),
        (
            "start to move the replicas, with at most 50 MB per second",
            "plog reassign-partitions --bootstrap-server localhost:9092 --execute"
            " --reassignment-json-file moves.json --throttle 50000000",
        ),
        (
            "show the progress of the moves and, when they are done, remove the throttle",
            "plog reassign-partitions --bootstrap-server localhost:9092 --verify"
            " --reassignment-json-file moves.json",
        ),
    )
    parser.set_defaults(run=run)


def _add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_argument_group("actions (specify exactly one)")
    for name, text in (
        ("--generate", "print new replicas of topics, evenly distributed over brokers"),
        ("--execute", "start to move the replicas in a file"),
        ("--verify", "show the progress of the moves; when all are done, remove the throttles"),
        ("--cancel", "cancel the moves, and remove the throttles"),
        ("--list", "list the partitions that are being moved"),
    ):
        actions.add_argument(name, action="store_true", help=text)


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of the actions")
    _add_proposal_options(group)
    group.add_argument(
        "--reassignment-json-file",
        metavar="FILE",
        help=f"--execute, --verify, --cancel: JSON file with the new replicas: {REASSIGNMENT_FORM};"
        ' "log_dirs" can list a directory, or "any", for each replica',
    )
    group.add_argument(
        "--additional",
        action="store_true",
        help="--execute: allow other moves in progress; --throttle then also applies to them",
    )
    group.add_argument(
        "--disallow-replication-factor-change",
        action="store_true",
        help="--execute: reject a different number of replicas",
    )
    group.add_argument(
        "--throttle",
        type=int,
        default=-1,
        metavar="BYTES",
        help="--execute: bytes per second that each broker may copy for the moves (default: no"
        " limit)",
    )
    group.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=int,
        default=-1,
        metavar="BYTES",
        help="--execute: bytes per second that each broker may copy between its directories"
        " (default: no limit)",
    )
    group.add_argument(
        "--timeout",
        dest="move_timeout_ms",
        type=not_negative,
        default=_MOVE_TIMEOUT_MS,
        metavar="MS",
        help="--execute, --cancel: time within which moves between directories must start"
        " (default: %(default)s)",
    )
    group.add_argument(
        "--preserve-throttles",
        action="store_true",
        help="--verify, --cancel: do not remove throttles",
    )


def _add_proposal_options(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--topics-to-move-json-file",
        metavar="FILE",
        help=f"--generate: JSON file with the topics: {TOPICS_FORM}",
    )
    group.add_argument(
        "--broker-list",
        type=number_list,
        metavar="BROKER,...",
        help="--generate: ids of the brokers that get the replicas",
    )
    group.add_argument(
        "--disable-rack-aware", action="store_true", help="--generate: ignore the brokers' racks"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the requested action."""
    action = one_of(arguments, _ACTIONS)
    check(arguments, action)
    match action:
        case "--generate":
            topics = read_topics(arguments.topics_to_move_json_file)
            return run_admin(arguments, lambda cluster: generate(cluster, topics, arguments))
        case "--list":
            return run_admin(arguments, lambda cluster: list_reassignments(cluster, arguments))
    # The file is read first, so that its errors are reported even if no broker is available.
    wanted = read_reassignments(arguments.reassignment_json_file)
    match action:
        case "--verify":
            return run_admin(arguments, lambda cluster: verify(cluster, wanted, arguments))
        case "--cancel":
            return run_admin(arguments, lambda cluster: cancel(cluster, wanted, arguments))
    run_admin(arguments, lambda cluster: execute(cluster, wanted, arguments))
    if wanted.log_dirs:
        # The other requests have the client's own timeout.
        arguments.timeout_ms = arguments.move_timeout_ms
        say = _say(arguments)
        run_admin(arguments, lambda cluster: start_log_dir_moves(cluster, wanted.log_dirs, say))
    return 0


def check(arguments: argparse.Namespace, action: str) -> None:
    """Reject options that the action does not have. Raises UsageError."""
    only_with(arguments, _FROM_FILE, "--reassignment-json-file")
    only_with(
        arguments, ["--generate"], "--topics-to-move-json-file", "--broker-list",
        "--disable-rack-aware",
    )  # fmt: skip
    only_with(arguments, ["--execute"], "--additional", "--disallow-replication-factor-change")
    only_with(arguments, ["--verify", "--cancel"], "--preserve-throttles")
    # These options have default values.
    for name, default in (("--throttle", -1), ("--replica-alter-log-dirs-throttle", -1)):
        value = getattr(arguments, name[2:].replace("-", "_"))
        if value != default and action != "--execute":
            raise UsageError(f"{name} requires --execute")
    if action in _FROM_FILE and not arguments.reassignment_json_file:
        raise UsageError(f"{action} requires --reassignment-json-file")
    if action == "--generate":
        for name in ("--topics-to-move-json-file", "--broker-list"):
            if not is_given(arguments, name):
                raise UsageError(f"--generate requires {name}")
        repeated = duplicates(arguments.broker_list)
        if repeated:
            raise UsageError(f"--broker-list contains broker {repeated[0]} twice")
    if arguments.bootstrap_controllers and action not in ("--cancel", "--list"):
        raise UsageError(
            f"{action} requires --bootstrap-server, because controllers do not serve it"
        )


# -- moves -------------------------------------------------------------------------------------


async def execute(cluster: Cluster, wanted: Reassignments, arguments: argparse.Namespace) -> None:
    """Run ``--execute``, except for moves between directories. Raises KafkaError, UsageError."""
    say = _say(arguments)
    admin = PartitionAdmin(cluster)
    ongoing = await admin.list_partition_reassignments()
    if ongoing and not arguments.additional:
        raise UsageError(_ONGOING)
    await available_racks(cluster, sorted(wanted.brokers), disable_rack_aware=True)
    current = await current_replicas(cluster, set(wanted.topics))
    missing = sorted(wanted.replicas.keys() - current.keys())
    if missing:
        raise UsageError(f"Unable to find partition: {', '.join(map(str, missing))}")
    if wanted.log_dirs or arguments.replica_alter_log_dirs_throttle >= 0:
        # Checked first: otherwise, the moves between brokers would have started.
        await check_supported(cluster, min(wanted.brokers))
    before = {partition: current[partition] for partition in wanted.replicas}
    # With its directories, a rollback puts the replicas back where they are now.
    log_dirs = await current_log_dirs(cluster, before)
    say(f"Current partition replica assignment\n\n{as_json(before, log_dirs)}\n\n{_SAVE_THIS}")
    if arguments.throttle >= 0 or arguments.replica_alter_log_dirs_throttle >= 0:
        say(_RUN_VERIFY)
    if arguments.throttle >= 0:
        moves = proposed_moves(ongoing, wanted.replicas, before)
        await set_throttle(cluster, moves, arguments.throttle)
        say(f"The inter-broker throttle limit was set to {arguments.throttle} B/s")
    if arguments.replica_alter_log_dirs_throttle >= 0:
        rate = arguments.replica_alter_log_dirs_throttle
        await set_log_dir_throttle(cluster, {one.broker for one in wanted.log_dirs}, rate)
        say(f"The replica-alter-dir throttle limit was set to {rate} B/s")
    started = await admin.alter_partition_reassignments(
        dict(wanted.replicas),
        allow_replication_factor_change=not arguments.disallow_replication_factor_change,
    )
    if started.errors:
        raise KafkaError(f"Error reassigning partition(s): {_errors(started.errors)}")
    partitions = sorted(wanted.replicas)
    plural = "" if len(partitions) == 1 else "s"
    say(f"Successfully started partition reassignment{plural} for {_joined(partitions)}")
    if arguments.json:
        previous = as_document(before, log_dirs)
        print_json({"previous": previous, "started": list(map(str, partitions))})


async def verify(cluster: Cluster, wanted: Reassignments, arguments: argparse.Namespace) -> int:
    """Run ``--verify``."""
    say = _say(arguments)
    states, is_moving = await find_partition_states(cluster, wanted.replicas)
    moves = await find_log_dir_moves(cluster, wanted.log_dirs)
    say("Status of partition reassignment:")
    for partition, state in states.items():
        say(state.line(partition))
    # As in Kafka's tool, this prints an empty line if the file names no directories.
    say("\n".join(move.line(replica) for replica, move in moves.items()))
    is_moving = is_moving or any(move.is_active for move in moves.values())
    if not is_moving and not arguments.preserve_throttles:
        await _clear_throttles(cluster, wanted, say)
    if arguments.json:
        print_json([_as_data(partition, state) for partition, state in states.items()])
    return 0


async def cancel(cluster: Cluster, wanted: Reassignments, arguments: argparse.Namespace) -> int:
    """Run ``--cancel``. Raises KafkaError."""
    say = _say(arguments)
    admin = PartitionAdmin(cluster)
    ongoing = sorted(await admin.list_partition_reassignments(wanted.replicas))
    plural = "" if len(ongoing) == 1 else "s"
    cancelled = await admin.alter_partition_reassignments(dict.fromkeys(ongoing))
    if cancelled.errors:
        problem = f"Error cancelling partition reassignment{plural} for:"
        raise KafkaError(f"{problem} {_errors(cancelled.errors)}")
    if ongoing:
        say(f"Successfully cancelled partition reassignment{plural} for: {_joined(ongoing)}")
    else:
        say("None of the specified partition reassignments are active.")
    moves = await find_log_dir_moves(cluster, wanted.log_dirs)
    # A move is cancelled by a move to the directory where the replica still is.
    active = {one: move.current for one, move in moves.items() if move.is_active and move.current}
    if active:
        await start_log_dir_moves(cluster, active, say)
    else:
        say("None of the specified partition moves are active.")
    if not arguments.preserve_throttles:
        await _clear_throttles(cluster, wanted, say)
    if arguments.json:
        print_json({"cancelled": list(map(str, ongoing))})
    return 0


async def _clear_throttles(
    cluster: Cluster, wanted: Reassignments, say: Callable[[str], object]
) -> None:
    # All brokers: the moves may have had other sources than the current replicas. A broker that is
    # not available keeps its rate, which has no effect without lists of throttled replicas.
    brokers = sorted((await BrokerAdmin(cluster).describe_cluster()).brokers)
    plural = "" if len(brokers) == 1 else "s"
    say(f"Clearing broker-level throttles on broker{plural} {_joined(brokers)}")
    await clear_broker_throttles(cluster, brokers)
    plural = "" if len(wanted.topics) == 1 else "s"
    say(f"Clearing topic-level throttles on topic{plural} {_joined(wanted.topics)}")
    await clear_topic_throttles(cluster, wanted.topics)


async def list_reassignments(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--list``."""
    ongoing = await PartitionAdmin(cluster).list_partition_reassignments()
    rows = sorted(ongoing.items())
    show(
        lambda: [
            "Current partition reassignments:" if rows else "No partition reassignments found.",
            *(_line(partition, moving) for partition, moving in rows),
        ],
        lambda: [
            Table(
                ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"),
                [
                    (
                        *partition,
                        _joined(moving.replicas),
                        _joined(moving.adding_replicas) or None,
                        _joined(moving.removing_replicas) or None,
                    )
                    for partition, moving in rows
                ],
            )
        ],
        lambda: [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(moving.replicas),
                "adding_replicas": list(moving.adding_replicas),
                "removing_replicas": list(moving.removing_replicas),
            }
            for partition, moving in rows
        ],
        as_json=arguments.json,
    )
    return 0


# -- output ------------------------------------------------------------------------------------


def _say(arguments: argparse.Namespace) -> Callable[[str], object]:
    """Return a function that prints a line, unless standard output is for a JSON document."""
    return (lambda _: None) if arguments.json else print


def _line(partition: TopicPartition, moving: Reassignment) -> str:
    adding, removing = moving.adding_replicas, moving.removing_replicas
    return (
        f"{partition}: replicas: {_joined(moving.replicas)}."
        + (f" adding: {_joined(adding)}." if adding else "")
        + (f" removing: {_joined(removing)}." if removing else "")
    )


def _as_data(partition: TopicPartition, state: PartitionState) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "done": state.is_done,
        "current_replicas": list(state.current),
        "target_replicas": list(state.target),
    }


def _errors(errors: Mapping[TopicPartition, KafkaError]) -> str:
    # On one line, as all errors of plog's tools.
    return "; ".join(f"{partition}: {errors[partition].message}" for partition in sorted(errors))


def _joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
