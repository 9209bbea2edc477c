"""What packaging/debian puts into each package, read from its lists as debhelper reads them."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from plog import records, wire
from plog.version import VERSION

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "packaging/debian"
# Where pybuild puts modules; dh_python3 moves them to /usr/lib/python3 later.
MODULES = "usr/lib/python3.11/dist-packages"
PACKAGES = ("python3-plog", "python3-plog-accel", "plog-tools", "plog-broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallLine:
    """A line of debian/PACKAGE.install: a pattern and the folder it is installed to.

    Without a folder, the pattern names files of the built distribution, which keep their path.
    """

    pattern: str
    folder: str | None

    def matches(self, path: str) -> bool:
        """Return whether the line installs `path` of the built distribution."""
        if self.folder is not None:
            return False
        # A folder is installed with its contents.
        parts = path.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
        return any(
            fnmatchcase(each, self.pattern) and each.count("/") == self.pattern.count("/")
            for each in above
        )


def lines_of(name: str) -> list[str]:
    """Return the lines of a file in packaging/debian; none if it does not exist."""
    path = DEBIAN / name
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def install_lines(package: str) -> list[InstallLine]:
    """Return the lines of debian/PACKAGE.install."""
    words = [line.split() for line in lines_of(f"{package}.install")]
    return [
        InstallLine(pattern=each[0], folder=each[1] if len(each) > 1 else None) for each in words
    ]


def excluded_words(package: str) -> list[str]:
    """Return what debian/rules excludes from a package: paths that contain one of these words."""
    rules = (DEBIAN / "rules").read_text()
    call = re.search(rf"\tdh_install --package={package}\b(.*)\n", rules)
    return re.findall(r"--exclude=(\S+)", call[1]) if call else []


def installs(package: str, path: str) -> bool:
    """Return whether a package gets `path` of the built distribution."""
    if any(word in path for word in excluded_words(package)):
        return False
    return any(line.matches(path) for line in install_lines(package))


def setup_cfg() -> configparser.ConfigParser:
    """Return setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def built_files() -> list[str]:
    """Return the paths of all files that a build installs, according to setup.cfg."""
    return [*_module_files(), *_scripts(), *_metadata(), *_compiled()]


def _module_files() -> Iterator[str]:
    config = setup_cfg()
    data = config["options.package_data"]
    for package in config["options"]["packages"].split():
        folder = ROOT / ("daemon" if package.startswith("plogd") else "")
        folder = folder.joinpath(*package.split("."))
        patterns = ["*.py", *data.get(package, "").replace(",", " ").split()]
        for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
            yield f"{MODULES}/{package.replace('.', '/')}/{path.name}"
    for module in config["options"]["py_modules"].split():
        yield f"{MODULES}/{module}.py"


def _scripts() -> Iterator[str]:
    for line in setup_cfg()["options.entry_points"]["console_scripts"].split("\n"):
        if line:
            yield f"usr/bin/{line.partition('=')[0].strip()}"


def _metadata() -> Iterator[str]:
    for name in ("METADATA", "entry_points.txt"):
        yield f"{MODULES}/plog-{VERSION}.dist-info/{name}"


def _compiled() -> Iterator[str]:
    for package, modules in (("plog/records", records.COMPILED), ("plog/wire", wire.COMPILED)):
        for module in modules:
            name = f"{module}.cpython-311-x86_64-linux-gnu.so"
            yield f"{MODULES}/{package}/compiled_01234567/{name}"


def shipped_paths() -> set[str]:
    """Return the installed paths of settings, examples, documents, scripts and units."""
    paths = {f"/{path}" for path in built_files()}
    for package in PACKAGES:
        for line in install_lines(package):
            if line.folder is not None:
                paths.add(f"/{line.folder}/{Path(line.pattern).name}")
        for line in lines_of(f"{package}.examples"):
            paths.add(f"/usr/share/doc/{package}/examples/{Path(line).name}")
        if (DEBIAN / f"{package}.README.Debian").exists():
            paths.add(f"/usr/share/doc/{package}/README.Debian")
    return paths
