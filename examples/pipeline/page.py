"""`write_page`: the result of the pipeline as an HTML page. The page needs no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from examples.pipeline.bar_chart import Mark, bar_chart
from examples.pipeline.pipeline import Outcome
from examples.pipeline.traffic import MINUTE_MS

_STYLE: Final = """
body { font: 15px/1.5 sans-serif; max-width: 940px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: 3px 12px; border-bottom: 1px solid #ddd; text-align: left; }
td.ok { color: #2e7d32; } td.bad { color: #c62828; font-weight: bold; }
svg { width: 100%; font: 12px sans-serif; margin: 1em 0; }
svg .title { font-size: 15px; font-weight: bold; }
svg .grid { stroke: #ddd; }
svg line.mark { stroke: #c62828; stroke-dasharray: 4 3; } svg text.mark { fill: #c62828; }
pre { background: #f5f5f5; padding: 1em; overflow-x: auto; }
"""
_MINUTES_SHOWN: Final = 8


def write_page(outcome: Outcome, path: Path) -> Path:
    """Write the page and return its path."""
    path.write_text(page(outcome), "utf-8")
    return path


def page(outcome: Outcome) -> str:
    """Return the text of the page."""
    verdict = "Every record is accounted for" if outcome.is_complete else "Some checks failed"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{verdict}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{verdict}</h1>",
        "<p>Three producers sent clicks and log lines to a plog broker. Spark jobs read them, and"
        " the broker was killed and restarted meanwhile. An audit compared the records in the"
        " topics with the reports of the producers. Then one record was lost and another one"
        " repeated in the same minute.</p>",
        _checks(outcome),
        bar_chart(
            "Records sent, by minute",
            outcome.sent,
            step_ms=MINUTE_MS,
            marks=[Mark(at_ms=outcome.restart_ms, label="broker killed")],
        ),
        bar_chart(
            "Records in the topics at the end, by minute",
            outcome.found,
            step_ms=MINUTE_MS,
            marks=[Mark(at_ms=outcome.planted_ms + MINUTE_MS // 2, label="one lost, one repeated")],
        ),
        _findings(outcome),
        _top_pages(outcome),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part)


def _checks(outcome: Outcome) -> str:
    rows = [
        f'<td class="{"ok" if one.is_ok else "bad"}">{"ok" if one.is_ok else "not ok"}</td>'
        f"{_cells([one.name, one.expected, one.found])}"
        for one in outcome.checks
    ]
    return _table(["", "check", "expected", "found"], rows)


def _findings(outcome: Outcome) -> str:
    rows = []
    for audit in outcome.audits:
        if not audit.findings:
            rows.append(_cells([audit.command, "nothing", "", "", "", ""]))
        for one in audit.data.get("findings", []):
            reported, found = one["reported"], one["found"]
            cells = [
                audit.command,
                one["kind"],
                f"{one['topic']} {_time_of(one['window_ms'])} {one['producer']}",
                f"{reported['records']} / {found['records']}",
                f"{reported['bytes']} / {found['bytes']}",
                f"{reported['crc32_sum']} / {found['crc32_sum']}",
            ]
            rows.append(_cells(cells))
    head = ["audit", "found", "window", "records (reported / found)", "bytes", "CRC-32 sum"]
    return "<h2>Audits</h2>" + _table(head, rows)


def _top_pages(outcome: Outcome) -> str:
    rows = [
        _cells(
            [
                _time_of(one.start_ms),
                one.total,
                ", ".join(f"{name} ({number})" for name, number in one.pages),
            ]
        )
        for one in outcome.top[-_MINUTES_SHOWN:]
    ]
    return "<h2>Most frequent pages</h2>" + _table(["minute", "clicks", "pages"], rows)


def _cells(values: Iterable[object]) -> str:
    return "".join(f"<td>{escape(_text(value))}</td>" for value in values)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{names}</tr>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _time_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M")
