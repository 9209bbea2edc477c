"""The example pipeline, with few records: every record is accounted for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.outside import missing

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_pipeline_accounts_for_every_record(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed (pip install 'plog[spark]')")
    command = [sys.executable, "-m", "examples.pipeline", "--clicks", "2000", "--lines", "1000"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "pipeline")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "pipeline/pipeline.html").read_text()
    assert "<h1>Every record is accounted for</h1>" in page
