"""docs/client-configuration.md and etc/client.properties match the settings tables."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from plog.client.network.sasl import credentials_of
from plog.client.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    docs,
)
from plog.properties import parse_properties
from plog.settings import settings_of

ROOT = Path(__file__).parents[4]
KINDS = [ProducerSettings, ConsumerSettings, AdminSettings]


@pytest.mark.parametrize(
    ("path", "what"),
    [("docs/client-configuration.md", "markdown"), ("etc/client.properties", "properties")],
)
def test_files_in_the_repository_are_up_to_date(
    path: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docs.main([what]) == 0
    printed = capsys.readouterr().out
    hint = f"print it again: python -m plog.client.settings.docs {what} > {path}"
    assert (ROOT / path).read_text() == printed, hint


@pytest.mark.parametrize("kind", KINDS)
def test_example_file_lists_every_default(kind: type[ClientSettings]) -> None:
    assert parse_properties(docs.properties()) == []
    lines = docs.properties().splitlines()
    uncommented = "\n".join(line[1:] for line in lines if line[:1] == "#" and line[1:2].isalpha())
    given = {a.key: a.value for a in parse_properties(uncommented)}
    for name, row in settings_of(kind).items():
        common = settings_of(ClientSettings).get(name, row)
        if common.default is not None:
            assert row.parse(given[name]) == common.default
        else:
            assert given[name] == ""


@pytest.mark.parametrize("kind", KINDS)
def test_table_has_a_row_for_every_setting(kind: type[ClientSettings]) -> None:
    text = docs.markdown()
    for name in settings_of(kind):
        assert text.count(f"| `{name}`") == 1


def test_different_default_of_a_client_is_listed() -> None:
    (line,) = [x for x in docs.markdown().splitlines() if "`receive.buffer.bytes`" in x]
    assert "`65536` bytes (64 KiB); `32768` for producers |" in line


def _example(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", docs.markdown(), re.DOTALL)
    return str(block)


def test_example_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(_example("python"))
    settings = runpy.run_path(str(path))["settings"]
    assert isinstance(settings, ProducerSettings)
    assert (settings.linger_ms, settings.compression_type) == (20, "zstd")


def test_example_file_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(_example("properties"))
    settings = ConsumerSettings.from_file(path)
    assert settings.warnings == ()
    assert credentials_of(settings).password == "correct horse"


def test_wrong_argument_prints_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([]) == 2
    assert "usage" in capsys.readouterr().err
