"""packaging/package-version: versions of packages sort as dpkg needs for upgrades."""

from __future__ import annotations

import itertools
import subprocess

import pytest

from plog.version import VERSION
from tests.helpers.outside import need_program
from tests.packaging.package_files import ROOT


def package_version(suite: str, version: str) -> str:
    script = ROOT / "packaging/package-version"
    done = subprocess.run([script, suite, version], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_version_has_a_suffix_for_each_debian() -> None:
    assert package_version("bookworm", "1.2.3") == "1.2.3~deb12u1"
    assert package_version("trixie", "1.2.3") == "1.2.3~deb13u1"
    assert package_version("trixie", VERSION).startswith(VERSION)


def test_unknown_suite_is_an_error() -> None:
    script = ROOT / "packaging/package-version"
    done = subprocess.run([script, "sid", "1.0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "package-version: unknown suite 'sid'; use bookworm or trixie\n"


def test_later_versions_sort_after_earlier_ones() -> None:
    dpkg = need_program("dpkg")
    pre_releases = ("1.0.0.dev3", "1.0.0a1", "1.0.0b1", "1.0.0rc1", "1.0.0rc2")
    ascending = [
        *(package_version("bookworm", version) for version in ("0.9.0", *pre_releases, "1.0.0")),
        package_version("trixie", "1.0.0"),
        "1.0.0-1",  # As Debian's own package would be named.
        package_version("bookworm", "1.0.1"),
    ]
    for earlier, later in itertools.pairwise(ascending):
        subprocess.run([dpkg, "--compare-versions", earlier, "lt", later], check=True)


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_release_is_part_of_the_version_unchanged(suite: str) -> None:
    assert package_version(suite, "2.10.0").split("~")[0] == "2.10.0"
