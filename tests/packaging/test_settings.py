"""The settings that plog-broker installs: valid, safe by default, and no questions at upgrades."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from plogd.config import load_config
from tests.packaging.package_files import ROOT

SETTINGS = ROOT / "packaging/settings"
DEFAULTS = SETTINGS / "broker.properties"
CONFFILE = SETTINGS / "server.properties"
INSTANCE = SETTINGS / "instance.properties"
CONFFILE_LINES_MAX = 20


@pytest.mark.parametrize(
    "files",
    [(DEFAULTS, CONFFILE), (DEFAULTS, INSTANCE), (DEFAULTS, ROOT / "etc/server.properties")],
)
def test_check_config_accepts_shipped_settings_without_warnings(files: tuple[Path, ...]) -> None:
    words = [str(word) for file in files for word in ("--config", file)]
    done = subprocess.run(
        [sys.executable, "-m", "plogd", "--check-config", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{ROOT}:{ROOT}/daemon"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the settings are valid\n", "")


def test_conffile_is_short_and_has_only_comments() -> None:
    """dpkg asks about a conffile only if the package changes it, so it must rarely change."""
    lines = CONFFILE.read_text().splitlines()
    assert len(lines) <= CONFFILE_LINES_MAX
    assert [line for line in lines if line and not line.startswith("#")] == []


def test_settings_in_the_comments_of_the_conffile_are_valid(tmp_path: Path) -> None:
    """The administrator removes the comment sign."""
    text = re.sub(r"^# (?=[\w.]+=)", "", CONFFILE.read_text(), flags=re.MULTILINE)
    file = tmp_path / "server.properties"
    file.write_text(text)
    loaded = load_config([DEFAULTS, file])
    assert loaded.warnings == ()
    assert loaded.sources.keys() == {"listeners", "log.dirs"}


def test_only_this_host_can_connect_by_default() -> None:
    for files in ([DEFAULTS, CONFFILE], [DEFAULTS, INSTANCE]):
        config = load_config(files).config
        assert [listener.host for listener in config.bound_listeners()] == ["127.0.0.1"]


def test_broker_and_instance_have_different_ports() -> None:
    [broker] = load_config([DEFAULTS]).config.bound_listeners()
    [instance] = load_config([DEFAULTS, INSTANCE]).config.bound_listeners()
    assert broker.port == 9092
    assert instance.port != broker.port


def test_defaults_leave_the_data_directory_to_the_unit() -> None:
    for files in ([DEFAULTS], [DEFAULTS, INSTANCE]):
        assert load_config(files).config.log_dirs is None
