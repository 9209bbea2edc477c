"""plog/compiled.py: compiled modules are used only for the sources that they were built from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plog import compiled, records
from plog.records import codec
from tests.helpers import codec_forms

ROOT = Path(__file__).parents[2]
MODULES = ("first", "second")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package with two compiled modules."""
    monkeypatch.delenv(compiled.INTERPRETED, raising=False)
    for module in MODULES:
        (tmp_path / f"{module}.py").write_text("A = 1")
        (tmp_path / f"{module}.pxd").write_text("")
    (tmp_path / compiled.folder_name(str(tmp_path), MODULES)).mkdir()
    return tmp_path


def test_compiled_modules_are_found_for_their_sources(package: Path) -> None:
    [found] = compiled.compiled_folders(str(package), MODULES)
    assert Path(found).parent == package


@pytest.mark.parametrize("changed", ["first.py", "first.pxd", "second.py", "second.pxd"])
def test_compiled_modules_are_not_found_after_source_change(package: Path, changed: str) -> None:
    path = package / changed
    before = path.read_text()
    path.write_text(before + "\n")
    assert compiled.compiled_folders(str(package), MODULES) == []
    path.write_text(before)
    assert compiled.compiled_folders(str(package), MODULES) != []


def test_moving_bytes_between_sources_is_a_change(package: Path) -> None:
    (package / "first.py").write_text("A = 1B = 2")
    (package / "second.py").write_text("")
    before = compiled.folder_name(str(package), MODULES)
    (package / "first.py").write_text("A = 1")
    (package / "second.py").write_text("B = 2")
    assert compiled.folder_name(str(package), MODULES) != before


def test_compiled_modules_are_not_found_without_sources(package: Path) -> None:
    (package / "second.py").unlink()
    assert compiled.compiled_folders(str(package), MODULES) == []


def test_environment_variable_selects_sources(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compiled.INTERPRETED, "1")
    assert compiled.compiled_folders(str(package), MODULES) == []


def test_codec_is_compiled_reports_form_in_use() -> None:
    assert codec.__file__ is not None
    assert records.codec_is_compiled() == (not codec.__file__.endswith(".py"))
    assert not compiled.is_compiled(codec_forms.interpreted())


def test_both_forms_come_from_this_source() -> None:
    form = codec_forms.need("compiled")
    assert compiled.is_compiled(form)
    assert codec_forms.interpreted() is not form


@pytest.mark.parametrize("name", codec_forms.compiled_modules())
def test_pxd_files_hold_declarations_only(name: str) -> None:
    """Otherwise, the interpreted form would lack code."""
    source = (ROOT / f"{name.replace('.', '/')}.pxd").read_text()
    code = [line.partition("#")[0].rstrip() for line in source.splitlines()]
    bodies = [line for line in code if line.endswith(":") and not line.startswith("cdef class ")]
    assert bodies == []
    assert not [line for line in code if re.search(r"\b(return|inline|include|extern)\b", line)]
