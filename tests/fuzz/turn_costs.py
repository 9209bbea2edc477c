"""Print the cost of hostile requests: ``python -m tests.fuzz.turn_costs [API ...]``.

Prints a line for each input of the fuzz target hostile_counts: the steps of its costliest turn, the
steps of decoding and encoding messages, the bytes compressed or decompressed, and the bound that
was exceeded, if any.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.targets.hostile_counts import WORLD, Case, run, seeds


def main() -> int:
    """Print the costs; return 1 if an input exceeded a bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.turn_costs", description=__doc__)
    parser.add_argument("--all-versions", action="store_true", help="and all shapes of elements")
    parser.add_argument("apis", nargs="*", metavar="API", help="such as Metadata (default: all)")
    options = parser.parse_args()
    failures = 0
    for data in seeds(thorough=options.all_versions):
        case = Case.parse(data)
        assert case is not None
        if not options.apis or case.row.name in options.apis:
            failures += not _is_within_bounds(case)
    print(f"{failures} inputs exceeded a bound")
    return min(failures, 1)


def _is_within_bounds(case: Case) -> bool:
    error: AssertionError | None = None
    try:
        run(case)
    except AssertionError as failure:
        error = failure
    broker, _ = WORLD.get()
    most = broker.meter.most
    costs = f"{most.steps:>9,} {most.wire_steps:>10,} {most.codec_bytes:>11,}"
    print(f"{costs}  {case}" + (f"  FAILED: {error}" if error else ""), flush=True)
    if error:
        WORLD.forget()
    return error is None


if __name__ == "__main__":
    sys.exit(main())
