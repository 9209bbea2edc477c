"""``python -m tests.cluster.faults``: cause random faults for some minutes, and check the records.

The command prints each fault, and at the end the counts. It exits with 0 without an anomaly, and
otherwise with 1, and keeps all files. The seed determines the faults, but not their timing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.faults.fault_kinds import FAULTS
from tests.cluster.faults.run import FaultRun


def main() -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="duration (default: 20)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="seed")
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), help="cause only these")
    parser.add_argument("--no-java", action="store_true", help="do not run Kafka's Java clients")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="plog-faults-"))
    started_s = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - started_s:7.1f} s  {line}", flush=True)

    report(f"seed {given.seed}, files in {folder}")
    with FaultRun(folder, given.seed, java=not given.no_java, report=report) as run:
        while time.monotonic() - started_s < given.minutes * 60:
            run.cause_any(given.only or FAULTS)
        problems = run.finish()
    for name, count in sorted(run.faults.items()):
        print(f"{count:6}  {name}")
    for name, count in sorted(run.history.counts.items()):
        print(f"{count:6}  {name}")
    for problem in problems:
        print(f"ANOMALY: {problem}")
    print(f"seed {given.seed}: {len(problems)} anomalies")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
