"""Tables built from the figures of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.loads import BY_NAME, LOADS
from tests.bench.results import Run

DOCUMENT = Path(__file__).parents[3] / "docs" / "performance.md"


def run_of(load: str, *ratios: float) -> Run:
    rounds = [
        {
            "kept": True,
            "runs": {
                "kafka": {"broker_us_per_request": 100.0, "requests_s": 1000},
                "plog": {"broker_us_per_request": 100 * x, "requests_s": 1000 / x},
                "plog-default": {"broker_us_per_request": 50.0, "requests_s": 1000},
            },
        }
        for x in ratios
    ]
    return Run(rounds={load: rounds}, seconds={load: 60.0})


def row(table: str, words: str) -> list[str]:
    found = [line for line in table.splitlines() if words in line]
    assert len(found) == 1, table
    return [cell.strip() for cell in found[0].strip("|").split("|")]


def test_report_marks_targets_as_met_or_missed() -> None:
    table = report.targets_table(run_of("raw-1", 0.3, 0.32, 0.5), [BY_NAME["raw-1"]])
    cpu = row(table, "CPU per request")
    assert cpu[2:] == ["≤ 0.3", "0.32", "0.30 – 0.50 (3)", "**MISSED**"]
    assert row(table, "requests/s ÷")[2:] == ["≥ 3", "3.12", "2.00 – 3.33 (3)", "met"]


def test_load_that_did_not_run_shows_the_reason() -> None:
    run = Run(failed={"big-log": "NOT RUN: no room"})
    cells = row(report.targets_table(run, [BY_NAME["big-log"]]), "produce CPU")
    assert cells[3:] == ["–", "NOT RUN: no room", ""]
    assert row(report.targets_table(Run(), [BY_NAME["idle"]]), "CPU ÷")[4] == "not run"


def test_defaults_table_shows_every_broker_and_the_ratio() -> None:
    cells = row(report.defaults_table(run_of("raw-1", 0.2)), "batch 1")
    assert cells[1:] == ["20.0 µs/request", "100.0 µs/request", "50.0 µs/request", "0.50"]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_every_load_has_a_command_and_a_target(load: object) -> None:
    named = BY_NAME[load.name]  # type: ignore[attr-defined]
    assert named is load, "two loads have one name"
    assert bool(named.command) + bool(named.steps) + bool(named.run) == 1
    assert named.targets
    assert named.section in ("cpu", "other", "cluster", "paper", "clients", "spark")


def test_document_has_a_place_for_every_table() -> None:
    text = DOCUMENT.read_text()
    made = report.with_tables(text, report.tables(run_of("raw-1", 0.3)))
    assert report.with_tables(made, report.tables(run_of("raw-1", 0.3))) == made


def test_load_is_judged_by_some_of_its_brokers() -> None:
    assert BY_NAME["raw-1"].judged == ("kafka", "plog", "plog-interpreted")
    assert BY_NAME["durable-5"].judged == ("disk", "plog-default", "plog")
    assert BY_NAME["paper"].judged == ("kafka", "plog", "rabbitmq", "activemq")


def test_report_shows_the_kernels_share_of_cpu_time() -> None:
    used = {"broker_cpu_s_per_gb": 1.5, "broker_cpu_s": 2.0, "broker_sys_s": 0.5}
    run = Run(rounds={"raw-1k": [{"kept": True, "runs": {"plog": used, "kafka": used}}]})
    assert row(report.defaults_table(run), "1 KiB × 100")[1] == "1.50 s/GB (25 % system)"


def test_missing_marker_is_an_error() -> None:
    with pytest.raises(ValueError, match="markers of cpu"):
        report.with_tables("nothing", {"cpu": ""})


def test_summary_lists_only_loads_that_ran() -> None:
    text = report.summary(run_of("raw-1", 0.3))
    assert "raw-1: rawproduce 200 B, batch 1" in text
    assert "kcat" not in text


def test_headline_shows_the_median_or_a_dash() -> None:
    run = run_of("raw-1", 0.3)
    for round_ in run.rounds["raw-1"]:
        round_["runs"]["plog"]["msgs_s"] = 61234
    cells = row(report.headlines_table(run), "200,000 messages/s in")
    assert cells[1].startswith("61,234 one by one; –")
