"""``make bench``: the same loads on plog, Apache Kafka, RabbitMQ and ActiveMQ, in turn.

    ./test bench [--quick] [--rounds N] [NAME…]     all loads, or those named
    ./test bench list                               their names
    ./test bench report RESULTS…                    the tables and plots of docs/performance.md
    ./test bench compare DIR [NAME…]                CPU of this tree ÷ that of the checkout in DIR

Writes results to bench-results/DATE.jsonl as they arrive. Exits with 1 if a load failed; a missed
target is not a failure, but the report shows it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from subprocess import TimeoutExpired

from plogd.testing.broker_process import BrokerFailed
from tests.bench import report
from tests.bench.comparison import compare
from tests.bench.load import Load
from tests.bench.loads import BY_NAME, LOADS
from tests.bench.peers import Missing
from tests.bench.results import Results, read_files
from tests.bench.session import Session, StepFailed
from tests.bench.special_loads import Skipped

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench-results"


def main(argv: list[str] | None = None) -> int:
    """Run loads or write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small round of each")
    parser.add_argument("--rounds", type=int, help="rounds of each load, noisy or not")
    parser.add_argument("--folder", help="folder of the brokers' files (default: a temporary one)")
    parser.add_argument("words", nargs="*", metavar="NAME")
    options = parser.parse_args(argv)
    if options.words[:1] == ["report"]:
        report.write(read_files(Path(name) for name in options.words[1:]), ROOT / "docs")
        return 0
    if options.words == ["list"]:
        print("\n".join(f"{load.name:14} {load.what}" for load in LOADS))
        return 0
    other = options.words[1] if options.words[:1] == ["compare"] and options.words[1:] else None
    names = options.words[2:] if other else options.words
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        parser.error(f"unknown load: {', '.join(unknown)}; `list` prints the names")
    loads = [load for load in LOADS if not names or load.name in names]
    # On SIGTERM, the bench must also stop its brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if other:
        compare(Path(other), names, quick=options.quick, rounds=options.rounds)
        return 0
    return _run(loads, options)


def _run(loads: list[Load], options: argparse.Namespace) -> int:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / time.strftime("%Y%m%d-%H%M%S.jsonl")
    failed = False
    with (
        path.open("w") as file,
        tempfile.TemporaryDirectory(prefix="plog-bench-", dir=options.folder) as name,
    ):
        results = Results(file, quick=options.quick)
        session = Session(Path(name), results, quick=options.quick, rounds=options.rounds)
        try:
            for load in loads:
                failed |= not _measure(session, load, results)
        finally:
            session.close()
    run = read_files([path])
    print(report.summary(run))
    print(f"results: {path}")
    return int(failed)


def _measure(session: Session, load: Load, results: Results) -> bool:
    """Run a load; return False if it failed. A load that cannot run on this machine has not."""
    began = time.monotonic()
    failure = ""
    try:
        session.measure(load)
    except (StepFailed, BrokerFailed, TimeoutExpired, OSError) as error:
        failure = str(error)
    except (Missing, Skipped) as error:
        results.load(load.name, time.monotonic() - began, f"NOT RUN: {error}")
        return True
    results.load(load.name, time.monotonic() - began, failure)
    return not failure


if __name__ == "__main__":
    sys.exit(main())
