"""docs/cli.md matches the parsers."""

from __future__ import annotations

from pathlib import Path

from plog.cli.commands import COMMANDS
from plog.cli.docs import markdown

PAGE = Path(__file__).parents[3] / "docs/cli.md"


def test_page_matches_the_parsers() -> None:
    assert PAGE.read_text() == markdown(), "python -m plog.cli.docs > docs/cli.md"


def test_every_command_has_a_section() -> None:
    text = markdown()
    assert all(f"\n## plog {row.name}\n" in text for row in COMMANDS)
    assert "\n### plog storage import\n" in text
