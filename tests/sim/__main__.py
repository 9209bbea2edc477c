"""``python -m tests.sim``: run seeds, and replay a seed that failed.

python -m tests.sim --seed 7 --steps 400          one run, the same every time
python -m tests.sim --seeds 1-100 --steps 400     many seeds, until one fails
python -m tests.sim --seeds 1-9999 --keep-going   all of them; lists the failed seeds at the end
python -m tests.sim --seed 7 --steps 400 --trace  print every notable event
python -m tests.sim --plant ack-before-flush      with a planted bug
python -m tests.sim --seed 7 --brokers 3          a cluster of three brokers on ZooKeeper

Exits with 0, or with 1 and the name of the anomaly on the last line. With --keep-going, the last
line contains the failed seeds.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence

from tests.sim.checker import Anomaly
from tests.sim.cluster.cluster_plan import MAX_BROKERS, choose_brokers
from tests.sim.cluster.cluster_world import ClusterWorld
from tests.sim.planted_bugs import ALL_PLANTS, planted
from tests.sim.world import World

_DEFAULT_SEEDS = range(1, 21)
_GC_THRESHOLD = 20_000
"""With Python's default of 700, garbage collection takes a sixth of the time of a seed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that the command line selects; return the exit status."""
    options = _parse(arguments)
    seeds = [options.seed] if options.seed is not None else options.seeds
    failed: list[int] = []
    with planted(options.plant):
        for seed in seeds:
            world = _make_world(seed, options)
            try:
                world.run()
            except Anomaly as anomaly:
                print(anomaly)
                again = f" --plant {options.plant}" if options.plant else ""
                again += f" --members {options.members}" if options.members is not None else ""
                again += f" --brokers {options.brokers}" if options.brokers is not None else ""
                if options.exceptions is not None:
                    again += " --exceptions" if options.exceptions else " --no-exceptions"
                print(f"replay: python -m tests.sim --seed {seed} --steps {options.steps}{again}")
                print(anomaly.name)
                failed.append(seed)
                if not options.keep_going:
                    return 1
            else:
                print(_summary(world))
    if options.keep_going:
        print(f"{len(failed)} of {len(seeds)} seeds failed:", *failed)
    return 1 if failed else 0


def _make_world(seed: int, options: argparse.Namespace) -> World | ClusterWorld:
    brokers = choose_brokers(seed) if options.brokers is None else options.brokers
    if brokers > 1:
        return ClusterWorld(
            seed,
            options.steps,
            brokers,
            trace=print if options.trace or options.trace_disk else None,
            trace_operations=options.trace_disk,
            with_monitor=not options.no_monitor,
        )
    return World(
        seed,
        options.steps,
        trace=print if options.trace or options.trace_disk else None,
        trace_operations=options.trace_disk,
        with_monitor=not options.no_monitor,
        members=options.members,
        exceptions=options.exceptions,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, help="run this seed")
    parser.add_argument("--seeds", type=_range, default=_DEFAULT_SEEDS, help="run seeds A-B")
    parser.add_argument("--keep-going", action="store_true", help="continue after a failed seed")
    parser.add_argument("--steps", type=int, default=400, help="number of steps of the clients")
    parser.add_argument(
        "--brokers",
        type=int,
        choices=range(1, MAX_BROKERS + 1),
        help="number of brokers (default: chosen by the seed)",
    )
    parser.add_argument("--members", type=int, help="group members (default: chosen by the seed)")
    parser.add_argument(
        "--exceptions",
        action=argparse.BooleanOptionalAction,
        help="inject exceptions (default: chosen by the seed)",
    )
    parser.add_argument("--plant", choices=sorted(ALL_PLANTS), help="plant this bug in the broker")
    parser.add_argument("--trace", action="store_true", help="print each notable event")
    parser.add_argument("--trace-disk", action="store_true", help="print each file operation, too")
    parser.add_argument(
        "--no-monitor", action="store_true", help="check only what clients can observe"
    )
    return parser.parse_args(arguments)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _summary(world: World | ClusterWorld) -> str:
    facts = {
        "lives": world.service.life_number,
        "acknowledged": world.history.acknowledged_count,
        "polled": world.history.polled_count,
        "committed": world.groups.committed_count,
        "generations": sum(one.assigned_generation for one in world.groups.views.values()),
        **dict(sorted(world.counts.items())),
    }
    if isinstance(world, ClusterWorld):
        facts = {"brokers": len(world.machines), **facts}
    return f"seed {world.seed}: " + ", ".join(f"{name} {number}" for name, number in facts.items())


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    sys.exit(main())
