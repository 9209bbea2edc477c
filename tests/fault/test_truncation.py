"""F12: a real file system loses its page cache at any step of a truncation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fault.devices import Ext4, ext4
from tests.fault.log_process import END_OFFSET, NEW_RECORDS, RECORDS

# The process must find the same modules, wherever this one found them.
_ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.fault.log_process", name, *arguments]


def _truncate(disk: Ext4, directory: Path, jobs: int) -> bool:
    """Lose power after so many jobs; return whether the truncation and the appends were done."""
    with subprocess.Popen(
        _command("truncate", str(directory), str(jobs)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        state = process.stdout.readline().strip()
        assert state in ("part", "whole")
        disk.cut_power()
        process.kill()
    disk.unmount()
    disk.mount()
    return state == "whole"


def _shown(directory: Path) -> dict[str, Any]:
    output = subprocess.run(
        _command("print", str(directory)),
        check=True,
        capture_output=True,
        text=True,
        env=_ENVIRONMENT,
    ).stdout
    found = json.loads(output)
    assert isinstance(found, dict)
    return found


def test_power_loss_at_any_step_of_a_truncation_mixes_no_records(tmp_path: Path) -> None:
    with ext4(tmp_path) as disk:
        jobs, is_whole = 0, False
        while not is_whole:
            directory = disk.path / f"data-{jobs}"
            is_whole = _truncate(disk, directory, jobs)
            found = _shown(directory)
            kinds = [value.split()[0] for _, value in found["values"]]
            assert [offset for offset, _ in found["values"]] == list(range(len(kinds)))
            count = kinds.count("old")
            assert END_OFFSET <= count <= RECORDS
            assert kinds == ["old"] * count + ["new"] * (len(kinds) - count)
            assert found["epochs"] == [int(kind == "new") for kind in kinds]
            if "new" in kinds:
                assert count == END_OFFSET
            if is_whole:
                assert len(kinds) == END_OFFSET + NEW_RECORDS
            assert not [line for line in found["reports"] if "lost" in line]
            jobs += 1
        assert jobs > 5
