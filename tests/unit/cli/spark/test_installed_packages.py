"""plog/cli/spark/installed_packages.py: the versions of pyspark, pandas and pyarrow."""

from __future__ import annotations

import configparser
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from plog.cli.spark.installed_packages import NEEDED, PackageError, check_packages, spark_home

GOOD = {"pandas": "2.3.3", "pyarrow": "18.0.0", "pyspark": "4.2.1"}


def check(versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    check_packages(version)


def test_supported_versions_pass() -> None:
    check(GOOD)
    check(GOOD | {"pandas": "2.2", "pyspark": "4.10.0.dev1"})


@pytest.mark.parametrize("name", GOOD)
def test_missing_package_is_named_with_its_remedy(name: str) -> None:
    others = {other: version for other, version in GOOD.items() if other != name}
    with pytest.raises(PackageError, match=rf"{name} is missing; run pip install 'plog\[spark\]'"):
        check(others)


@pytest.mark.parametrize(
    ("name", "version", "bounds"),
    [
        ("pandas", "3.0.0", ">= 2.2, < 3"),
        ("pandas", "2.1.4", ">= 2.2, < 3"),
        ("pyarrow", "17.0.0", ">= 18;"),
        ("pyspark", "4.1.2", ">= 4.2, < 5"),
        ("pyspark", "5.0.0", ">= 4.2, < 5"),
    ],
)
def test_unsupported_version_is_named(name: str, version: str, bounds: str) -> None:
    with pytest.raises(PackageError, match=f"{name} {version} is not supported.* needs {bounds}"):
        check(GOOD | {name: version})


def test_versions_match_setup_cfg() -> None:
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[4] / "setup.cfg")
    lines = config["options.extras_require"]["spark"].strip().splitlines()
    assert lines == [f"{name} {bounds}" for name, bounds in NEEDED.items()]


def test_missing_pyspark_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PackageError, match="pyspark is missing"):
        spark_home()
