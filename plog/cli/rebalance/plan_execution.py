"""Show a plan, carry it out and report the outcome: the common part of rebalance and drain."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator

from plog.cli.options import positive
from plog.cli.output import kafka_columns, print_json, progress, show
from plog.cli.parser import fail
from plog.cli.rebalance.cluster_state import ClusterState
from plog.cli.rebalance.plan import Plan, size_text
from plog.cli.rebalance.reassignment_run import (
    Outcome,
    ReassignmentRun,
    error_lines,
    interruption_text,
)
from plog.cli.shutdown import Shutdown
from plog.client.network.cluster import Cluster
from plog.types import TopicPartition

_PARALLEL = 20


def add_plan_options(parser: argparse.ArgumentParser, *, moves: bool = True) -> None:
    """Add the options of commands that make a plan; without `moves`, it only changes leaders."""
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan, and do not change anything"
    )
    if moves:
        parser.add_argument(
            "--throttle",
            type=positive,
            metavar="BYTES",
            help="bytes per second that each broker may copy for the moves (default: no limit)",
        )
        parser.add_argument(
            "--disable-rack-aware", action="store_true", help="ignore the brokers' racks"
        )
    parser.add_argument(
        "--parallel",
        type=positive,
        default=_PARALLEL,
        metavar="NUMBER",
        help="maximum number of partitions that are moved at the same time (default: %(default)s)",
    )


async def carry_out(
    cluster: Cluster,
    state: ClusterState,
    plan: Plan,
    arguments: argparse.Namespace,
    *,
    elections: Collection[TopicPartition],
    command: str,
) -> int:
    """Show the plan and, without ``--dry-run``, carry it out; return the exit code.

    After the moves, `elections` get their preferred leaders. `command` is the command line that
    continues after an interruption.
    """
    if arguments.dry_run:
        _show_plan(plan, as_json=arguments.json)
        return 0
    if not arguments.json:
        _show_plan(plan, as_json=False)
    is_bar = sys.stderr.isatty()
    throttle: int | None = getattr(arguments, "throttle", None)
    with Shutdown() as shutdown, progress(sum(plan.copied.values()), "B", scale=True) as advance:
        run = ReassignmentRun(
            cluster,
            plan,
            state,
            is_interrupted=lambda: shutdown.requested,
            # Lines would break the progress bar.
            say=_ignore if arguments.json or is_bar else print,
            warn=fail,
            advance=advance,
            measures=is_bar,
        )
        await run.move(parallel=arguments.parallel, throttle=throttle)
        if not shutdown.requested:
            await run.elect(elections)
            await run.clear_throttles({partition.topic for partition in plan.after})
    outcome = run.outcome
    if arguments.json:
        print_json({**plan.as_data(), **_as_data(outcome)})
    for line in error_lines(outcome.errors):
        fail(line)
    if shutdown.requested:
        fail(interruption_text(outcome, command, is_throttled=throttle is not None))
        return shutdown.exit_code
    if not arguments.json:
        print(_summary(outcome, plan))
    return 1 if outcome.errors else 0


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    def lines() -> Iterator[str]:
        for table in plan.tables():
            cells = [["-" if cell is None else cell for cell in row] for row in table.rows]
            yield from kafka_columns([table.columns, *cells])
            yield ""
        yield plan.summary()

    show(lines, plan.tables, plan.as_data, as_json=as_json)


def _ignore(text: str) -> None:
    """Print nothing."""


def _summary(outcome: Outcome, plan: Plan) -> str:
    copied = plan.copied
    moved = [partition for partition in outcome.moved if partition in copied]
    size = sum(copied[partition] for partition in moved)
    return (
        f"Done: moved replicas of {len(moved)} partitions ({size_text(size)}), changed only the"
        f" preferred leaders of {len(outcome.moved) - len(moved)}, elected"
        f" {len(outcome.elected)} leaders."
    )


def _as_data(outcome: Outcome) -> dict[str, object]:
    return {
        "moved": list(map(str, outcome.moved)),
        "moving": list(map(str, outcome.moving)),
        "waiting": list(map(str, outcome.waiting)),
        "elected": list(map(str, outcome.elected)),
        "errors": {str(one): error.message for one, error in sorted(outcome.errors.items())},
    }
