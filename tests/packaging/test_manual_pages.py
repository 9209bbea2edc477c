"""Manual pages: man formats all of them, and plog-broker(8) has the options of the command."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from plog.cli.manual_pages import write_pages
from plogd.tap import Options
from tests.helpers.outside import need_program
from tests.packaging.package_files import ROOT

BROKER_PAGE = ROOT / "packaging/man/plog-broker.8"


def test_broker_page_has_the_options_of_the_command() -> None:
    text = BROKER_PAGE.read_text()
    section = text.partition(".SH OPTIONS")[2].partition(".SH ")[0].replace(r"\-", "-")
    tags = re.findall(r"^\.TP\n(.*)", section, re.MULTILINE)
    shown = {name for tag in tags for name in re.findall(r"--([a-z-]+)", tag)}
    assert shown == {name.removesuffix("=") for name in Options().longOpt}
    short = {name for tag in tags for name in re.findall(r"(?<!-)-([a-z])\b", tag)}
    assert short == set(Options().shortOpt.replace(":", ""))


def test_man_formats_the_pages_without_warnings(tmp_path: Path) -> None:
    man = need_program("man")
    write_pages(tmp_path / "man1")
    for page in [BROKER_PAGE, *sorted((tmp_path / "man1").iterdir())]:
        done = subprocess.run(
            [man, "-l", "--warnings", "-E", "UTF-8", page],
            capture_output=True,
            text=True,
            cwd=tmp_path,  # Short names refer to man1/….
            timeout=60,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
        )
        assert (page.name, done.stderr) == (page.name, "")
        assert "NAME" in done.stdout
