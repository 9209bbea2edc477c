"""plog/cli/spark/installed_java.py: the Java that Spark would run."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.spark.installed_java import (
    JavaError,
    check_version,
    find_java,
    java_version,
    parse_version,
)


def program(folder: Path, output: str) -> Path:
    """Create a program that prints `output` on standard error, as Java does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "java"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("Error: could not create the Java Virtual Machine", None),
    ],
)
def test_version_is_the_first_number(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first = program(tmp_path / "jdk" / "bin", "")
    second = program(tmp_path / "bin", "")
    path = {"PATH": str(second.parent)}
    assert find_java(path | {"JAVA_HOME": str(tmp_path / "jdk")}) == str(first)
    assert find_java(path | {"JAVA_HOME": ""}) == str(second)


def test_missing_java_is_named_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="Java is missing; install Java 17 or 21"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaError, match=r"JAVA_HOME is .*, which does not contain bin/java"):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})


def test_version_is_read_from_the_program(tmp_path: Path) -> None:
    assert java_version(str(program(tmp_path, 'openjdk version "17.0.1"'))) == 17


def test_program_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="prints no version"):
        java_version(str(program(tmp_path, "no")))
    with pytest.raises(JavaError, match="does not run"):
        java_version(str(tmp_path / "missing"))


@pytest.mark.parametrize("version", [8, 11, 16])
def test_old_version_is_refused(version: int) -> None:
    with pytest.raises(JavaError, match=f"java is Java {version}; install Java 17 or 21"):
        check_version(version, "java")


def test_supported_versions_pass_and_others_have_a_warning() -> None:
    assert check_version(17, "java") is check_version(21, "java") is None
    assert check_version(25, "java") == "java is Java 25, which is not tested; Java 17 and 21 are"
