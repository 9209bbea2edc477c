"""Builds of plog with the compiled record codec, and without it where it cannot be compiled."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from plog.compiled import INTERPRETED
from plogd.testing.broker_process import BrokerProcess
from tests.helpers import codec_forms
from tests.helpers.outside import missing, need_program

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 200


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with a copy of everything that a wheel is built from."""
    folder = tmp_path / "plog"
    folder.mkdir()
    for name in ("setup.py", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("plog", "daemon", "twisted"):
        ignored = shutil.ignore_patterns("__pycache__", "compiled_*", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


def _setup(folder: Path, *command: str, **environment: str) -> str:
    """Run setup.py and return the lines about plog that it prints to standard error."""
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *command],
        cwd=folder,
        env={**os.environ, "PLOG_INTERPRETED": "", **environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return "".join(line for line in done.stderr.splitlines(True) if line.startswith("plog"))


def _runs_compiled(folder: Path) -> bool:
    """Whether the plog in this folder uses the compiled codec; also encodes a record with it."""
    program = (
        "from plog.records import codec, codec_is_compiled;"
        "assert codec.encode_records([(-1, 0, None, None, ())], 0, 0);"
        "print(codec_is_compiled())"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder), "PLOG_INTERPRETED": ""}
    arguments = [sys.executable, "-c", program]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout == "True\n"


def _need_cython() -> None:
    need_program("cc")
    for name in ("Cython", "setuptools"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")


def _without_cython(folder: Path) -> str:
    """Return a PYTHONPATH on which importing Cython fails."""
    hidden = folder / "hidden/Cython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('no Cython here')")
    return str(hidden.parent)


def test_inplace_build_is_used_until_the_source_changes(sources: Path) -> None:
    _need_cython()
    older = sources / "plog/records/compiled_00000000"
    older.mkdir()
    assert _setup(sources, "build_ext", "--inplace") == ""
    assert _runs_compiled(sources)
    assert not older.exists()
    # The build leaves no other files in the sources.
    assert list(sources.rglob("*.c")) == list((sources / "build").rglob("*.c"))
    with open(sources / "plog/records/codec.py", "a") as file:
        file.write("\n")
    assert not _runs_compiled(sources)


@pytest.mark.long
def test_build_contains_the_compiled_codec_and_all_sources(sources: Path) -> None:
    _need_cython()
    _setup(sources, "build", "--build-lib", "out")
    assert _runs_compiled(sources / "out")
    assert (sources / "out/plog/records/codec.pxd").exists()


@pytest.mark.parametrize("why", ["no Cython here", "no-such-compiler"])
def test_codec_that_cannot_be_compiled_is_omitted_with_one_message(sources: Path, why: str) -> None:
    if why == "no Cython here":
        messages = _setup(
            sources, "build", "--build-lib", "out", PYTHONPATH=_without_cython(sources)
        )
    else:
        _need_cython()
        messages = _setup(sources, "build", "--build-lib", "out", CC="no-such-compiler")
    assert messages.startswith("plog: built without its compiled modules: ")
    assert why in messages
    assert messages.count("\n") == 1
    assert not _runs_compiled(sources / "out")


def test_platform_independent_wheel_is_built_on_request(sources: Path) -> None:
    if importlib.util.find_spec("setuptools.command.bdist_wheel") is None:
        missing("setuptools 70.1 is not installed")
    messages = _setup(sources, "bdist_wheel", "--dist-dir", "dist", PLOG_INTERPRETED="1")
    assert messages == ""
    [wheel] = (sources / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


@pytest.mark.long
def test_compiled_codec_accesses_no_memory_outside_the_records(sources: Path) -> None:
    """Repeat the comparison with the interpreted codec under AddressSanitizer."""
    _need_cython()
    flags = "-fsanitize=address -fno-omit-frame-pointer"
    _setup(sources, "build_ext", "--inplace", CFLAGS=flags, LDFLAGS=flags)
    shutil.copytree(ROOT / "tests", sources / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    arguments = [need_program("cc"), "-print-file-name=libasan.so"]
    library = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()
    environment = {
        "PYTHONPATH": f"{sources}:{sources}/daemon",
        "PLOG_INTERPRETED": "",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        # Allocate each object separately: an overrun inside pymalloc's arenas goes unnoticed.
        "PYTHONMALLOC": "malloc",
        "CI": "true",
    }
    arguments = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    arguments += [
        "tests/unit/records/test_codec_forms.py",
        "tests/unit/records/test_column_decoder.py",
    ]
    done = subprocess.run(
        arguments, cwd=sources, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("is_interpreted", [False, True])
def test_broker_runs_the_form_that_its_environment_selects(
    tmp_path: Path, is_interpreted: bool
) -> None:
    if not is_interpreted:
        codec_forms.need("compiled")
    environment = {INTERPRETED: "1" if is_interpreted else ""}
    with BrokerProcess(tmp_path, environment=environment) as broker:
        assert codec_forms.process_is_compiled(broker.pid) == (not is_interpreted)
