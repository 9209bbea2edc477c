"""``./test bench compare DIR [NAME…]``: CPU of this tree divided by that of another checkout.

To judge a change to a hot path, check out the commit before it into a separate directory (``git
worktree add DIR COMMIT``) and compare. Both trees run in turn within a round, so a ratio compares
the same minute of the machine. The other tree uses this tree's virtual environment;
its record codec is compiled in place if this tree's is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import client_loads
from tests.bench.load import Load
from tests.bench.loads import BY_NAME
from tests.bench.peers import NO_SYNC, Plog
from tests.bench.results import Results
from tests.bench.rounds import Round, ratio, spread
from tests.bench.session import Session

DEFAULT_LOADS = ("raw-1", "raw-50", "rawfetch", "client-produce", "client-consume")
BEFORE = "before"
_CLIENT_CPU = "client_cpu_s_per_mrecord"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A tree of plog's sources that can run instead of this one."""

    root: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment with which Python imports from this tree in any directory."""
        paths = (self.root, self.root / "daemon")
        return {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONSAFEPATH": "1"}

    def compile_codec(self) -> None:
        """Compile the record codec in place, as ``./test`` does in this tree."""
        subprocess.run(
            [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"],
            cwd=self.root,
            env={**os.environ, **self.environment},
            check=True,
        )


def compare(root: Path, names: Sequence[str], *, quick: bool, rounds: int | None) -> None:
    """Run each load on both trees and print the ratio of their CPU.

    Raises SystemExit if `root` contains no plog, or a load does not run on plog.
    """
    if not (root / "plog" / "version.py").exists():
        raise SystemExit(f"cannot compare with {root}: not a checkout of plog")
    checkout = Checkout(root.resolve())
    checkout.compile_codec()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plog-compare-")))
        file = stack.enter_context((folder / "rounds.jsonl").open("w"))
        results = Results(file, quick=quick)
        session = Session(folder, results, quick=quick, rounds=rounds)
        stack.callback(session.close)
        session.add(BEFORE, lambda path: Plog(path, NO_SYNC, environment=checkout.environment))
        for name in names or DEFAULT_LOADS:
            figure, load = _load_on_both(BY_NAME[name], checkout)
            kept = session.measure(load)
            print(_verdict(name, figure, kept), flush=True)


def _load_on_both(load: Load, checkout: Checkout) -> tuple[str, Load]:
    """Return the figure to compare and a load that runs on the two trees only."""
    if load.name.startswith("client-"):
        mode = load.name.removeprefix("client-")

        def run(session: Session) -> Generator[Round]:
            return client_loads.compare(session, mode, BEFORE, checkout.environment)

        return _CLIENT_CPU, replace(load, run=run, targets=())
    if "plog" not in load.peers or load.run is not None:
        raise SystemExit(f"cannot compare {load.name}: it is not a command that runs on plog")
    figure = "broker_us_per_request" if load.is_of_requests else "broker_cpu_s_per_gb"
    return figure, replace(load, peers=(BEFORE, "plog"), targets=())


def _verdict(name: str, figure: str, rounds: Sequence[Round]) -> str:
    of = ratio(figure, against=BEFORE)
    found = spread([of(round_, "plog") for round_ in rounds])
    if found is None:
        return f"{name}: all rounds were noisy"
    return (
        f"{name}: {figure} ÷ before = {found.middle:.3f}"
        f" ({found.least:.3f} to {found.greatest:.3f}, {found.count} rounds)"
    )
