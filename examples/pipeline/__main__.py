"""``python -m examples.pipeline``: run the pipeline; see the package's docstring."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from examples.pipeline.page import write_page
from examples.pipeline.pipeline import PipelineOptions, run_pipeline


def main() -> int:
    """Run the pipeline and write the page; return 0 if every record is accounted for."""
    parser = argparse.ArgumentParser(
        prog="make pipeline", description="Run a pipeline in which every record is accounted for."
    )
    parser.add_argument("--clicks", type=int, default=20_000, help="number of clicks to send")
    parser.add_argument("--lines", type=int, default=10_000, help="number of log lines to send")
    parser.add_argument("--minutes", type=int, default=30, help="simulated time of the records")
    parser.add_argument("--seed", type=int, default=1, help="seed of the records")
    parser.add_argument(
        "--timeout", type=int, default=300, help="longest time in seconds for each job to catch up"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/pipeline"), help="folder, which is replaced"
    )
    given = parser.parse_args()
    options = PipelineOptions(
        clicks=given.clicks,
        lines=given.lines,
        minutes=given.minutes,
        seed=given.seed,
        timeout_s=given.timeout,
        folder=given.output.absolute(),
        now_ms=int(time.time() * 1000),
    )
    outcome = run_pipeline(options, report=lambda line: print(line, flush=True))
    page = write_page(outcome, options.folder / "pipeline.html")
    for check in outcome.checks:
        print(check)
    print(f"The page is {page}.")
    return 0 if outcome.is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
