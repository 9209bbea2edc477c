"""A compiled module is used only for the exact source from which it was built."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog import compiled, records
from plog.records import codec
from tests.helpers import codec_forms

MODULES = ("first", "second")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package's folder with two compiled modules."""
    monkeypatch.delenv(compiled.INTERPRETED, raising=False)
    for module in MODULES:
        (tmp_path / f"{module}.py").write_text("A = 1")
        (tmp_path / f"{module}.pxd").write_text("")
    (tmp_path / compiled.folder_name(str(tmp_path), MODULES)).mkdir()
    return tmp_path


def test_module_compiled_from_the_sources_is_found(package: Path) -> None:
    [found] = compiled.compiled_folders(str(package), MODULES)
    assert Path(found).parent == package


@pytest.mark.parametrize("changed", ["first.py", "first.pxd", "second.py", "second.pxd"])
def test_compiled_module_is_not_used_after_a_source_has_changed(
    package: Path, changed: str
) -> None:
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


def test_no_compiled_module_is_used_without_sources(package: Path) -> None:
    (package / "second.py").unlink()
    assert compiled.compiled_folders(str(package), MODULES) == []


def test_environment_variable_disables_compiled_modules(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compiled.INTERPRETED, "1")
    assert compiled.compiled_folders(str(package), MODULES) == []


def test_plog_reports_the_codec_that_it_uses() -> None:
    assert codec.__file__ is not None
    assert records.codec_is_compiled() == (not codec.__file__.endswith(".py"))
    assert not compiled.is_compiled(codec_forms.interpreted())


def test_both_forms_are_built_from_the_current_source() -> None:
    form = codec_forms.need("compiled")
    assert compiled.is_compiled(form)
    assert codec_forms.interpreted() is not form
