"""plog/cli/spark/linked_home.py: a home of Spark without the archive of pyspark."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from plog.cli.spark.linked_home import cache_folder, home_in, linked_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "pyspark"
    for name in ("bin", "jars", "python/lib", "python/pyspark"):
        (made / name).mkdir(parents=True)
    for name in ("bin/spark-submit", "jars/spark.jar", "python/lib/py4j.zip"):
        (made / name).touch()
    (made / "python/lib/pyspark.zip").touch()
    return made


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def files(folder: Path) -> list[str]:
    found = [folder / name for name in ("bin", "jars", "python", "python/lib", "python/pyspark")]
    return [str(path.relative_to(folder)) for one in found for path in sorted(one.iterdir())]


def test_home_has_everything_except_the_archive(home: Path, cache: Path) -> None:
    linked = home_in(cache, home)
    assert files(linked) == [name for name in files(home) if "pyspark.zip" not in name]
    assert home_in(cache, home) == linked
    assert list(cache.iterdir()) == [linked]


def test_changed_contents_have_a_home_of_their_own(home: Path, cache: Path) -> None:
    before = home_in(cache, home)
    (home / "sbin").mkdir()
    after = home_in(cache, home)
    assert after != before
    assert (after / "sbin").exists()


def test_incomplete_home_is_created_again(home: Path, cache: Path) -> None:
    linked = home_in(cache, home)
    (linked / "jars").unlink()
    assert home_in(cache, home) == linked
    assert (linked / "jars/spark.jar").exists()


def test_users_do_not_share_a_home(
    home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = home_in(cache, home)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert home_in(cache, home) != first


def test_home_itself_is_used_without_a_cache(
    home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.touch()
    assert linked_home(home, {"XDG_CACHE_HOME": str(cache)}) == home

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert linked_home(home, {}) == home


def test_home_that_another_job_creates_at_the_same_time_is_kept(
    home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    create_folder = tempfile.mkdtemp

    def mkdtemp(**options: Any) -> str:
        # After this job has found no home, another one creates it.
        monkeypatch.setattr(tempfile, "mkdtemp", create_folder)
        made.append(home_in(cache, home).stat().st_ino)
        return create_folder(**options)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    linked = home_in(cache, home)
    assert [linked.stat().st_ino] == made
    assert list(cache.iterdir()) == [linked]


def test_cache_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for environment in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(environment) == tmp_path / ".cache" / "plog"
