"""plog/cli/spark/packed_files.py: which files the archive contains."""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest

from plog.cli.spark.packed_files import (
    NEEDED,
    PackError,
    distribution_files,
    distributions,
    packed_files,
)
from plog.records import codec_is_compiled

PLOG = Path(__file__).parents[4] / "plog"


class Site:
    """A folder with distributions, as pip installs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, *files: str, requires: tuple[str, ...] = ()) -> None:
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {one}" for one in requires)]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:
            path = self.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file)

    def find(self, name: str) -> Distribution:
        info = self.folder / f"{name}-1.0.dist-info"
        if not info.is_dir():
            raise PackageNotFoundError(name)
        return PathDistribution(info)

    def names(self, *needed: str, optional: tuple[str, ...] = ()) -> list[str]:
        return [x.metadata["Name"] for x in distributions(needed, optional, self.find)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def test_requirements_are_followed(site: Site) -> None:
    site.install("a", "a.py", requires=("b>=1", "c[fast] (>=2)", 'x; extra == "dev"'))
    site.install("b", "b.py", requires=('c; python_version < "4"', 'w; sys_platform == "win32"'))
    site.install("c", "c.py", requires=("a",))
    site.install("d", "d.py")
    assert site.names("a") == ["a", "b", "c"]


def test_missing_requirement_is_named(site: Site) -> None:
    site.install("a", "a.py", requires=("b>=1",))
    with pytest.raises(PackError, match="cannot pack b: it is not installed; run pip install b"):
        site.names("a")


def test_optional_distribution_may_be_missing(site: Site) -> None:
    site.install("a", "a.py")
    assert site.names("a", optional=("b",)) == ["a"]
    site.install("b", "b.py")
    assert site.names("a", optional=("b",)) == ["a", "b"]


def test_scripts_and_tests_are_left_out(site: Site) -> None:
    wanted = ["a/__init__.py", "a/fast.cpython-311.so", "a.libs/libx.so.1", "a/data.csv"]
    unwanted = ["../../bin/a", "a/tests/test_a.py", "a/include/a.h", "a/__pycache__/a.pyc"]
    site.install("a", *wanted, *unwanted)
    found = distribution_files(site.find("a"))
    assert sorted(found) == sorted([*wanted])
    assert found["a/data.csv"].read_text() == "a/data.csv"


def test_distribution_without_a_list_of_files_is_an_error(site: Site) -> None:
    """Debian's packages have none."""
    site.install("a", "a-1.0.dist-info/INSTALLER")
    with pytest.raises(PackError, match="cannot pack a: the list of its files is missing"):
        distribution_files(site.find("a"))


def test_archive_contains_plog_with_its_codec(site: Site) -> None:
    for name in NEEDED:
        site.install(name, f"{name}.py")
    site.install("mine", "mine.py")
    found = packed_files(PLOG, ["mine"], site.find)
    assert {"plog/__init__.py", "plog/spark/source.py", "pyspark_plog.py", "mine.py"} <= set(found)
    assert {"lz4.py", "python-snappy.py", "zstandard.py"} <= set(found)
    assert all(file.is_file() for file in found.values())
    assert "plog/records/codec.pxd" in found
    compiled = [name for name in found if "compiled_" in name]
    assert bool(compiled) >= codec_is_compiled()
    assert not [name for name in found if "__pycache__" in name]
