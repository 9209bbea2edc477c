"""docs/configuration.md and etc/server.properties match the declared settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.properties import parse_properties
from plog.settings import settings_of
from plogd.config import BrokerConfig, docs, load_config
from plogd.topic_config import TopicConfig

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("path", "what"),
    [("docs/configuration.md", "markdown"), ("etc/server.properties", "properties")],
)
def test_generated_file_is_up_to_date(
    path: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docs.main([what]) == 0
    printed = capsys.readouterr().out
    hint = f"regenerate it: python -m plogd.config.docs {what} > {path}"
    assert (ROOT / path).read_text() == printed, hint


def test_example_file_sets_nothing() -> None:
    assert parse_properties(docs.properties()) == []


def test_example_file_lists_every_setting_with_its_default() -> None:
    lines = docs.properties().splitlines()
    uncommented = "\n".join(line[1:] for line in lines if line[:1] == "#" and line[1:2].isalpha())
    rows = settings_of(BrokerConfig)
    assert [a.key for a in parse_properties(uncommented)] == list(rows)
    not_set = {name for name, row in rows.items() if row.default is None}
    given = [f"{a.key}={a.value}" for a in parse_properties(uncommented) if a.key not in not_set]
    assert load_config([], given).config == BrokerConfig()


def test_markdown_has_a_row_for_every_setting() -> None:
    text = docs.markdown()
    for name in [*settings_of(BrokerConfig), *settings_of(TopicConfig)]:
        assert f"| `{name}`" in text


def test_missing_argument_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([]) == 2
    assert "usage" in capsys.readouterr().err
