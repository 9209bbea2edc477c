"""The examples of docs/testing.md and of the README's "In a test", run as test files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _examples() -> list[tuple[str, str]]:
    readme = (ROOT / "README.md").read_text()
    texts = {
        "README": readme.partition("## In a test")[2].partition("\n## ")[0],
        "testing": (ROOT / "docs/testing.md").read_text(),
    }
    found = []
    for name, text in texts.items():
        for source in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            [first, *_] = re.findall(r"def test_(\w+)", source)
            found.append((f"{name}-{first}", source))
    return found


EXAMPLES = _examples()


@pytest.mark.parametrize(("name", "source"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_example_passes(pytester: pytest.Pytester, name: str, source: str) -> None:
    path = pytester.makepyfile(source)
    result = pytester.runpytest_subprocess(
        "-p",
        "plogd.testing.plugin",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        path,
        timeout=120,
    )
    result.assert_outcomes(passed=source.count("def test_"))


def test_both_documents_have_examples() -> None:
    names = [name.partition("-")[0] for name, _ in EXAMPLES]
    assert names.count("README") == 1
    assert names.count("testing") >= 5
