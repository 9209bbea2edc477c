"""Each file of the built distribution is in exactly one package, and in the right one."""

from __future__ import annotations

import re

import pytest

from tests.packaging.package_files import (
    DEBIAN,
    MODULES,
    PACKAGES,
    ROOT,
    built_files,
    install_lines,
    installs,
    lines_of,
    setup_cfg,
    shipped_paths,
)


def packages_with(path: str) -> list[str]:
    return [package for package in PACKAGES if installs(package, path)]


def test_every_built_file_is_in_exactly_one_package() -> None:
    files = built_files()
    assert len(files) > 300
    assert {path: found for path in files if len(found := packages_with(path)) != 1} == {}


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("usr/bin/plog", "plog-tools"),
        ("usr/bin/plog-broker", "plog-broker"),
        (f"{MODULES}/twisted/plugins/plog_plugin.py", "python3-plog"),
        (f"{MODULES}/plogd/testing/plugin.py", "python3-plog"),
        (f"{MODULES}/plog/records/codec.pxd", "python3-plog"),
        (f"{MODULES}/plog/records/compiled_0/codec.so", "python3-plog-accel"),
        (f"{MODULES}/plog/wire/compiled_0/single_produce.so", "python3-plog-accel"),
    ],
)
def test_file_is_in_its_package(path: str, package: str) -> None:
    assert packages_with(path) == [package]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_line_of_an_install_list_matches_a_file(package: str) -> None:
    made_by_rules = re.compile(r"debian/(man|completions)/")
    files = built_files()
    for line in install_lines(package):
        if line.folder is None:
            assert any(line.matches(path) for path in files), line
        elif not made_by_rules.match(line.pattern):
            assert list(ROOT.glob(line.pattern)), line


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", ["docs", "examples"])
def test_listed_documents_exist(package: str, kind: str) -> None:
    for line in lines_of(f"{package}.{kind}"):
        assert (ROOT / line).exists()


def test_paths_that_texts_name_are_installed() -> None:
    texts = [
        *(ROOT / "packaging/settings").iterdir(),
        *(ROOT / "systemd").iterdir(),
        ROOT / "packaging/man/plog-broker.8",
        DEBIAN / "plog-broker.README.Debian",
    ]
    shipped = shipped_paths()
    # "." ends a sentence or a font change of the manual page.
    named = {
        path.replace("\\", "").rstrip(".")
        for text in texts
        for path in re.findall(r"/usr/(?:share|bin)/[-\w\\./]+", text.read_text())
    }
    assert len(named) >= 5
    assert named - shipped == set()


def test_rules_copy_every_unit_and_clean_the_copies() -> None:
    rules = (DEBIAN / "rules").read_text()
    units = re.search(r"^UNITS = ((?:.*\\\n)*.*)", rules, re.MULTILINE)
    assert units is not None
    names = units[1].replace("\\", " ").split()
    assert {f"debian/{name}" for name in names} <= set(lines_of("clean"))
    assert {path.name for path in (ROOT / "systemd").iterdir()} == {*names, "plog.slice"}


def control_fields(package: str) -> dict[str, str]:
    """Return the fields of a binary package, or of the source package `plog`."""
    text = re.sub(r"^#.*\n", "", (DEBIAN / "control").read_text(), flags=re.MULTILINE)
    for paragraph in text.split("\n\n"):
        fields = re.findall(r"^(\S+?):\s*((?:.*(?:\n\s.*)*))", paragraph, re.MULTILINE)
        table = {name: " ".join(value.split()) for name, value in fields}
        if package in (table.get("Package"), table.get("Source")):
            return table
    raise LookupError(package)


def test_only_plog_tools_conflicts_with_ppp_and_is_not_required() -> None:
    assert control_fields("plog-tools")["Conflicts"] == "ppp"
    for package in PACKAGES:
        assert "plog-tools" not in control_fields(package)["Depends"]
    # On a host with ppp the recommendation is fulfilled, so that apt does not replace ppp.
    assert control_fields("plog-broker")["Recommends"] == "plog-tools | ppp"


def test_packages_depend_on_the_modules_of_their_own_version() -> None:
    for package in ("python3-plog-accel", "plog-tools", "plog-broker"):
        assert "python3-plog (= ${source:Version})" in control_fields(package)["Depends"]


def test_fast_codec_and_checksum_are_recommended() -> None:
    recommended = control_fields("python3-plog")["Recommends"].split(", ")
    assert recommended == ["libisal2", "python3-plog-accel"]
    assert control_fields("python3-plog-accel")["Architecture"] == "any"


def test_kazoo_is_only_suggested() -> None:
    assert (DEBIAN / "py3dist-overrides").read_text().split() == ["kazoo"]
    for package in ("python3-plog", "plog-tools"):
        assert "python3-kazoo" in control_fields(package)["Suggests"].split(", ")


def test_every_requirement_of_setup_cfg_is_a_build_dependency() -> None:
    """The generators import every module of the commands."""
    needed = {
        re.split(r"[ >=<]", line)[0].lower().removeprefix("python-")
        for line in setup_cfg()["options"]["install_requires"].split("\n")
        if line
    }
    needed = {name.removeprefix("py") if name == "pyopenssl" else name for name in needed}
    built_with = control_fields("plog")["Build-Depends"]
    # Twisted depends on zope.interface.
    missing = {name for name in needed if f"python3-{name}" not in built_with}
    assert missing == {"zope.interface"}
