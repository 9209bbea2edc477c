"""Texts avoid phrases that read as word-by-word translations.

A short list of the worst ones, with the form that a native speaker writes. It does not judge
style; it keeps phrases out that were once everywhere. Identifiers are checked as well, because they
are read as often as any comment. In the sources of tests, only comments,
docstrings and the names of functions and classes count: their data may say anything.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CALQUES = {
    r"nobody|no one": "name the actor: no client, no broker",
    r"somebody|someone|anybody": "name the actor: a client, the operator",
    r"whoever|whomever": "name the actor: pending requests, the caller",
    r"anew": "again, or a verb with re-",
    r"mend(s|ed|ing)?": "repair, recover, fix",
    r"in vain": "timed out waiting for",
    r"put aside": "moved to",
    r"for want of": "because … could not",
    r"(let|lets|letting) go( of)?": "unload, close, release",
    r"(is|are|was|were|be|been|gets?) told": "is notified, reported, logged",
    r"(tells?|told|telling) of": "report, describe",
    r"hears?|heard": "receive, learn",
    r"there (is|are) none": "is missing, does not exist",
    r"of late": "recent",
    r"see the module's text": "say what an instance represents",
    r"(lie|lies|goes on) behind": "follow, after",
    r"beside each other": "concurrently",
    r"one after the other": "sequentially",
    r"comes? about": "happens, succeeds",
    r"is no [a-z_`]+": "is not a …",
    r"so many (bytes|ms|milliseconds|seconds|records|times)": "`count` bytes",
}
"""Phrases, as regular expressions of whole words, and what to write in their place."""

_ALLOWED = {
    # "is no longer" and the like are English.
    r"is no (longer|more|less|later|earlier|other|such|need|way|limit|room|space|reason|point)\b",
    r"there is no ",
}
_CALQUE = re.compile(r"(?<![a-z0-9])(" + "|".join(CALQUES) + r")(?![a-z0-9])", re.IGNORECASE)
_ALLOWED_PHRASE = re.compile("|".join(_ALLOWED), re.IGNORECASE)


def _product_texts() -> list[Path]:
    sources = [
        path for folder in ("plog", "daemon", "twisted") for path in (ROOT / folder).rglob("*.py")
    ]
    docs = [
        path for folder in ("docs", "tests", "packaging") for path in (ROOT / folder).rglob("*.md")
    ]
    settings = [*(ROOT / "etc").rglob("*.properties"), *(ROOT / "packaging").rglob("*.properties")]
    scripts = [ROOT / name for name in ("run", "test", ".ci/venv.sh", "setup.cfg", "setup.py")]
    return sorted([*sources, *docs, *settings, *scripts, *ROOT.glob("*.md")])


def calques(text: str) -> list[str]:
    """Return the lines of `text` with a phrase of the list, each with its line number."""
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if _CALQUE.search(_ALLOWED_PHRASE.sub("", line))
    ]


def _texts_in(source: str) -> Iterator[str]:
    """Yield the comments, docstrings and names in a source file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
            yield getattr(node, "name", "")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", _product_texts(), ids=_name)
def test_product_text_has_no_calque(path: Path) -> None:
    assert calques(path.read_text()) == []


def _sources_of_tests() -> list[Path]:
    return sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__)})  # It lists the calques.


@pytest.mark.parametrize("path", _sources_of_tests(), ids=_name)
def test_text_of_a_test_has_no_calque(path: Path) -> None:
    assert [found for text in _texts_in(path.read_text()) for found in calques(text)] == []


def test_comments_docstrings_and_names_are_texts() -> None:
    source = 'def name() -> str:\n    """Docstring."""\n    return "data"  # Comment.\n'
    assert set(_texts_in(source)) == {"", "name", "Docstring.", "# Comment."}


@pytest.mark.parametrize(
    "line",
    [
        "A name nobody knows is an error.",
        "def _mend(self) -> None:",
        "raise ValueError(f'{name} is no topic')",
        "def somebody_else(): ...",
        "whoever waits gets `error`",
    ],
)
def test_calque_is_found(line: str) -> None:
    assert calques(f"A plain sentence.\n{line}\n") == [f"2: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "The member is no longer part of the group.",
        "Recommend a larger buffer; amendments are documented.",
        "There is no limit.",
    ],
)
def test_plain_english_is_accepted(line: str) -> None:
    assert calques(line) == []
