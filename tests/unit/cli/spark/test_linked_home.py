"""plog/cli/spark/linked_home.py: a home of Spark without the archive of pyspark."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.spark.linked_home import cache_folder, linked_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "pyspark"
    for name in ("bin", "jars", "python"):
        (made / name).mkdir(parents=True)
    (made / "jars" / "spark.jar").touch()
    return made


def test_home_has_everything_except_the_archive(home: Path, tmp_path: Path) -> None:
    linked = linked_home(home, tmp_path / "cache")
    assert sorted(path.name for path in linked.iterdir()) == ["bin", "jars"]
    assert (linked / "jars" / "spark.jar").exists()
    assert linked_home(home, tmp_path / "cache") == linked
    assert list((tmp_path / "cache").iterdir()) == [linked]


def test_changed_contents_have_a_home_of_their_own(home: Path, tmp_path: Path) -> None:
    before = linked_home(home, tmp_path / "cache")
    (home / "sbin").mkdir()
    after = linked_home(home, tmp_path / "cache")
    assert after != before
    assert (after / "sbin").exists()


def test_home_itself_is_used_if_the_cache_cannot_be_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert linked_home(home, tmp_path / "cache") == home


def test_another_job_may_create_the_home_at_the_same_time(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        target.mkdir()
        (target / "jars").symlink_to(home / "jars")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    linked = linked_home(home, tmp_path / "cache")
    assert (linked / "jars" / "spark.jar").exists()
    assert list((tmp_path / "cache").iterdir()) == [linked]


def test_cache_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for environment in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(environment) == tmp_path / ".cache" / "plog"
