"""Search for inputs that reach new lines: ``python -m tests.fuzz [--seconds N] [TARGET ...]``.

The hot path runs interpreted, because only Python code is covered. With ``--compiled``, its
compiled modules run instead (decision 0011). The search starts with all inputs that earlier runs of
both forms have found, so run the interpreted form first.

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
_SLOWEST_OF_LONG_S = 300
"""The time limits for an input; the second if a target's inputs take long (`Target.examples`)."""
_RSS_LIMIT_MB = 1_024
_MEMORY_CHECKED_EVERY = 50
_SHOWN = ("form", "Done", "stat::number_of")
"""The lines of a target's output that are always printed."""
_FOUND = ("crash-*", "leak-*", "oom-*", "timeout-*")
"""The files that libFuzzer writes for inputs that break a target."""


def main() -> int:
    """Run the targets sequentially; return how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="seconds per target")
    parser.add_argument("--compiled", action="store_true", help="run the compiled hot path")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    if options.here:
        [name] = options.targets
        _fuzz(name, options.seconds, is_compiled=options.compiled)
    names = options.targets or _names()
    unknown = set(names) - set(_names())
    if unknown:
        parser.error(f"unknown target {', '.join(unknown)}; choose from {', '.join(_names())}")
    extra = ["--compiled"] if options.compiled else []
    failed = [name for name in names if not _run(name, options.seconds, extra)]
    print(f"{len(names)} targets, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return len(failed)


def _names() -> list[str]:
    # Do not import the package here: atheris must instrument its imports.
    return sorted(
        path.stem
        for path in (Path(__file__).parent / "targets").glob("*.py")
        if path.stem != "__init__"
    )


def _run(name: str, seconds: int, extra: list[str]) -> bool:
    """Fuzz a target in a new process; return whether it passed."""
    work = _WORK / name
    before = _found(work)
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--here",
        "--seconds",
        str(seconds),
        *extra,
        name,
    ]
    print(f"== {name}: {seconds} s", flush=True)
    done = subprocess.run(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("#")]
    is_passed = done.returncode == 0
    print("\n".join(line for line in lines if not is_passed or line.startswith(_SHOWN)), flush=True)
    for found in sorted(_found(work) - before):
        _keep(name, found)
    return is_passed


def _found(work: Path) -> set[Path]:
    return {path for pattern in _FOUND for path in work.glob(pattern)}


def _keep(name: str, found: Path) -> None:
    """Copy an input that broke the target into the corpus."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    data = found.read_bytes()
    kept = folder / f"crash-{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]}"
    kept.write_bytes(data)
    print(f"saved as {kept.relative_to(_ROOT)}")


def _fuzz(name: str, seconds: int, *, is_compiled: bool) -> None:
    """Fuzz a target. Never returns: atheris ends the process."""
    os.environ["PLOG_INTERPRETED"] = "" if is_compiled else "1"
    import atheris

    with atheris.instrument_imports(include=["plog", "plogd"]):
        from tests.fuzz.targets import TARGETS

    _check_form(is_compiled)
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
        f"-timeout={_SLOWEST_S if target.examples is None else _SLOWEST_OF_LONG_S}",
        f"-rss_limit_mb={_RSS_LIMIT_MB}",
        f"-artifact_prefix={work}/",
        "-print_final_stats=1",
        str(work),
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()


def _check_form(is_wanted: bool) -> None:
    """Print the form of the hot path. Exits if it is not the wanted form."""
    from tests.helpers.codec_forms import compiled_modules

    modules = compiled_modules()
    print(f"form: {'compiled' if is_wanted else 'interpreted'}", file=sys.stderr)
    wrong = [name for name, is_compiled in modules.items() if is_compiled is not is_wanted]
    if wrong:
        sys.exit(
            f"cannot fuzz the {'compiled' if is_wanted else 'interpreted'} form: {', '.join(wrong)}"
            " has the other form; run python setup.py build_ext --inplace"
        )


if __name__ == "__main__":
    sys.exit(main())
