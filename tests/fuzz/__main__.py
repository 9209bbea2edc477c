"""Search for inputs that reach new lines: ``python -m tests.fuzz [--seconds N] [TARGET ...]``.

Each target runs in a separate process, because atheris instruments imports and ends the process. It
starts with the target's seeds and its corpus, and works in .fuzz/<target>/, where the next run
continues. An input that breaks the target is written to corpus/<target>/ as crash-…. ./test then
fails until the bug is fixed, and the file prevents a regression.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.target import CORPUS

_ROOT = Path(__file__).parents[2]
_WORK = _ROOT / ".fuzz"
_MAX_INPUT_BYTES = 4_096
_SLOWEST_S = 20
_RSS_LIMIT_MB = 1_024
_MEMORY_CHECKED_EVERY = 50


def main() -> int:
    """Run the targets sequentially; return how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="seconds per target")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    if options.here:
        [name] = options.targets
        _fuzz(name, options.seconds)
    names = options.targets or _names()
    unknown = set(names) - set(_names())
    if unknown:
        parser.error(f"unknown target {', '.join(unknown)}; choose from {', '.join(_names())}")
    failed = [name for name in names if not _run(name, options.seconds)]
    print(f"{len(names)} targets, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return len(failed)


def _names() -> list[str]:
    # Do not import the package here: atheris must instrument its imports.
    return sorted(
        path.stem
        for path in (Path(__file__).parent / "targets").glob("*.py")
        if path.stem != "__init__"
    )


def _run(name: str, seconds: int) -> bool:
    """Fuzz a target in a new process; return whether it passed."""
    work = _WORK / name
    before = set(work.glob("crash-*"))
    command = [sys.executable, "-m", "tests.fuzz", "--here", "--seconds", str(seconds), name]
    print(f"== {name}: {seconds} s", flush=True)
    done = subprocess.run(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = done.stderr.splitlines()
    print("\n".join(line for line in lines if line.startswith(("Done", "stat::number_of"))))
    for found in sorted(set(work.glob("crash-*")) - before):
        print("\n".join(line for line in lines if not line.startswith("#")))
        _keep(name, found)
    return done.returncode == 0


def _keep(name: str, found: Path) -> None:
    """Copy an input that broke the target into the corpus."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    data = found.read_bytes()
    kept = folder / f"crash-{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]}"
    kept.write_bytes(data)
    print(f"saved as {kept.relative_to(_ROOT)}")


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz a target. Never returns: atheris ends the process."""
    # Only Python code is covered; codec_forms loads the compiled codec in addition.
    os.environ["PLOG_INTERPRETED"] = "1"
    import atheris

    with atheris.instrument_imports(include=["plog", "plogd"]):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    work = _WORK / name
    work.mkdir(parents=True, exist_ok=True)
    for seed in (*target.seeds(), *(path.read_bytes() for path in target.corpus_files())):
        digest = hashlib.sha1(seed, usedforsecurity=False).hexdigest()
        (work / f"seed-{digest[:12]}").write_bytes(seed)
    inputs = 0

    def one(data: bytes) -> None:
        nonlocal inputs
        inputs += 1
        # Tracing allocations is slow, and many inputs exceed a bound that one exceeds.
        (target.check if inputs % _MEMORY_CHECKED_EVERY == 0 else target.fuzz)(data)

    arguments = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={_MAX_INPUT_BYTES}",
        f"-timeout={_SLOWEST_S}",
        f"-rss_limit_mb={_RSS_LIMIT_MB}",
        f"-artifact_prefix={work}/",
        "-print_final_stats=1",
        str(work),
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
