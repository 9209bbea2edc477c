"""The documentation: the files and modules that it names exist, and its links work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for folder in (".", "docs/**", "examples/**", "tests/**")
    for path in ROOT.glob(f"{folder}/*.md")
)
SOURCES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("daemon", "examples", "plog", "tests", "twisted")
    for path in (ROOT / folder).rglob("*.p*")
] + ["/setup.py"]
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_FOLDERS = "daemon|docs|etc|examples|packaging|plog|systemd|tests|twisted"
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./@-]+\.\w+)`")
_END_OF_PATH = re.compile(r"`([\w/]+\.(?:py|pxd))`")
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
_TOUR_ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \|", re.MULTILINE)
_HISTORY = ("CHANGELOG.md",)  # Its entries keep the file names of their time.


def text_of(page: Path) -> str:
    return _FENCE.sub("", (ROOT / page).read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_that_a_page_names_exist(page: Path) -> None:
    if page.name in _HISTORY:
        pytest.skip("history")
    missing = [name for name in _PATH.findall(text_of(page)) if not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_sources_that_a_page_names_without_their_folder_exist(page: Path) -> None:
    if page.name in _HISTORY:
        pytest.skip("history")
    names = set(_END_OF_PATH.findall(text_of(page)))
    missing = [name for name in names if not any(path.endswith(f"/{name}") for path in SOURCES)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    folder = (ROOT / page).parent
    links = [target for target, _ in _LINK.findall(text_of(page)) if target]
    missing = [target for target in links if not (folder / target).exists()]
    assert not missing


def test_tour_names_files_with_about_their_length() -> None:
    rows = _TOUR_ROW.findall((ROOT / "docs/tour.md").read_text("utf-8"))
    assert len(rows) > 20
    wrong = []
    for name, lines in rows:
        length = len((ROOT / name).read_text("utf-8").splitlines())
        if abs(length - int(lines)) > max(20, length // 5):
            wrong.append(f"{name}: {length}, not {lines}")
    assert not wrong


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    linked = {target for target, _ in _LINK.findall(index)}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= linked


def test_every_bound_of_plogs_own_is_listed_with_its_effect() -> None:
    settings = (ROOT / "docs/configuration.md").read_text("utf-8")
    bounds = set(re.findall(r"^\| `(plog\.[a-z.]*\.max\.[a-z.]+)`", settings, re.MULTILINE))
    assert len(bounds) > 10
    listed = (ROOT / "docs/security.md").read_text() + (ROOT / "docs/reliability.md").read_text()
    rows = set(re.findall(r"^\| `(plog\.[a-z.]+)`", listed, re.MULTILINE))
    assert bounds <= rows
