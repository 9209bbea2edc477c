"""Writing and reading a results file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.bench.results import Results, read, read_files

FIGURES = {"wall_s": 2.0, "other_cpu_s": 0.1, "msgs_s": 5, "end_to_end_ms": {"p50": 1, "p99": 2}}


def lines_of(load: str, value: int, *, kept: bool = True) -> str:
    file = io.StringIO()
    written = Results(file, quick=False)
    written.version("kafka", "Apache Kafka 4.3.1")
    written.round(load, 1, {"plog": {"x": value}}, kept=kept)
    written.load(load, 12.34)
    return file.getvalue()


def test_written_results_are_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    run = read(lines_of("raw-1", 7).splitlines())
    assert run.about["quick"] is False
    assert run.versions == {"kafka": "Apache Kafka 4.3.1"}
    assert run.counted("raw-1") == [{"plog": {"x": 7}}]
    assert run.seconds == {"raw-1": 12.3}
    assert "raw-1: done in 12 s" in capsys.readouterr().out


def test_noisy_rounds_count_only_when_all_rounds_are_noisy() -> None:
    noisy, quiet = lines_of("idle", 1, kept=False), lines_of("idle", 2)
    assert read(noisy.splitlines()).counted("idle") == [{"plog": {"x": 1}}]
    both = read((noisy + quiet).splitlines())
    assert both.counted("idle") == [{"plog": {"x": 2}}]
    assert (both.noisy("idle"), both.is_doubtful("idle")) == (1, False)
    assert read(noisy.splitlines()).is_doubtful("idle")


def test_later_file_replaces_only_its_own_loads(tmp_path: Path) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_text(lines_of("idle", 1) + lines_of("kcat", 2))
    second.write_text(lines_of("kcat", 3))
    run = read_files([first, second])
    assert run.counted("idle") == [{"plog": {"x": 1}}]
    assert run.counted("kcat") == [{"plog": {"x": 3}}]


def test_failed_load_shows_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    Results(file, quick=True).load("kcat", 1, "it broke")
    assert read(file.getvalue().splitlines()).failed == {"kcat": "it broke"}
    assert "kcat: FAILED: it broke" in capsys.readouterr().out


def test_each_run_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Results(io.StringIO(), quick=True).say("latency", "plog", "", FIGURES)
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert line.split()[1:] == ["latency", "plog", "msgs_s=5", "end_to_end_ms=1/2", "others=0.05"]
