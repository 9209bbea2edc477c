"""The maintainer scripts: what purge deletes, starts of the broker, and Twisted's plugin cache."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.eventually import eventually
from tests.helpers.outside import missing
from tests.packaging.package_files import DEBIAN, ROOT, lines_of

SCRIPTS = [
    *sorted(DEBIAN.glob("*.p*inst")),
    *sorted(DEBIAN.glob("*.p*rm")),
    DEBIAN / "tests/smoke",
    ROOT / "packaging/trees.sh",
    ROOT / "packaging/package-version",
]
BASH_SCRIPTS = [ROOT / "packaging/build-deb", ROOT / "packaging/build-repo"]


@pytest.mark.parametrize("script", [*SCRIPTS, *BASH_SCRIPTS], ids=lambda path: path.name)
def test_shell_accepts_the_script(script: Path) -> None:
    shell = "bash" if script in BASH_SCRIPTS else "sh"
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def run_script(
    name: str,
    *words: str,
    root: Path | str,
    path: Path | None = None,
    around: Sequence[str] = (),
    package: str = "plog-broker",
) -> str:
    """Run a script of a package as dpkg does, on the files below `root`; return its messages."""
    environment = {"PATH": os.environ["PATH"], "DPKG_ROOT": str(root)}
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    script = DEBIAN / f"{package}.{name}"
    done = subprocess.run(
        [*around, "sh", script, *words], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def files_below(folder: Path) -> set[str]:
    """Return the paths of files, links and empty folders below `folder`."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir() or not list(path.iterdir())
    }


def write(file: Path, text: str = "x") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a host on which dpkg has removed plog-broker and its conffile."""
    root = tmp_path / "root"
    for name in (
        "etc/plog/conf.d/local.properties",
        "etc/plog/broker-2/server.properties",
        "etc/plog/broker-2/conf.d/more.properties",
        "var/lib/plog/broker/orders-0/00000000000000000000.log",
        "var/lib/plog/broker/.lock",
        "var/lib/plog/broker-2/orders-0/00000000000000000000.log",
    ):
        write(root / name)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "plog-broker@2.service").symlink_to("/lib/systemd/system/plog-broker@.service")
    return root


def test_purge_deletes_settings_and_data_of_the_broker_and_its_instances(root: Path) -> None:
    assert run_script("postrm", "purge", root=root) == ""
    assert files_below(root) == {"etc/systemd/system/multi-user.target.wants", "var/lib"}


@pytest.mark.parametrize("action", ["remove", "upgrade", "abort-install", "disappear"])
def test_other_actions_delete_nothing(root: Path, action: str) -> None:
    before = files_below(root)
    run_script("postrm", action, root=root)
    assert files_below(root) == before


def test_purge_keeps_files_that_are_not_the_brokers(root: Path) -> None:
    others = {
        "etc/plog/agent.conf",
        "etc/plog/tls/key.pem",
        "etc/plogd.conf",
        "etc/systemd/system/multi-user.target.wants/plog-agent.service",
        "etc/systemd/system/plog-broker.service.d/data.conf",
        "srv/plog/orders-0/00000000000000000000.log",
        "var/lib/plog/agent/offsets",
        "var/lib/plog/orders-0/00000000000000000000.log",
    }
    for name in others:
        write(root / name)
    run_script("postrm", "purge", root=root)
    assert files_below(root) == others


def test_purge_keeps_what_links_lead_to(root: Path) -> None:
    kept = {"srv/data/orders-0/1.log", "srv/etc/local.properties", "srv/more/2.log"}
    for name in kept:
        write(root / name)
    (root / "var/lib/plog/broker-3").symlink_to(root / "srv/data")
    (root / "etc/plog/broker-3").symlink_to(root / "srv/etc")
    (root / "var/lib/plog/broker/more").symlink_to(root / "srv/more")
    run_script("postrm", "purge", root=root)
    assert files_below(root / "srv") == {name.removeprefix("srv/") for name in kept}
    assert not (root / "var/lib/plog").exists()
    assert not (root / "etc/plog").exists()


@pytest.mark.parametrize("folder", ["etc/plog", "var/lib/plog"])
def test_purge_does_not_follow_a_link_in_place_of_a_parent_folder(root: Path, folder: str) -> None:
    (root / "srv").mkdir()
    (root / folder).rename(root / "srv/plog")
    (root / folder).symlink_to(root / "srv/plog")
    before = files_below(root / "srv")
    run_script("postrm", "purge", root=root)
    assert files_below(root / "srv") == before


def test_purge_keeps_partitions_of_a_log_directory_above_the_default_one(root: Path) -> None:
    """A topic may be called "broker"; its partition directories are broker-0, broker-1, …"""
    write(root / "var/lib/plog/meta.properties")
    run_script("postrm", "purge", root=root)
    assert files_below(root / "var/lib/plog") == {
        "broker-2/orders-0/00000000000000000000.log",
        "meta.properties",
    }


def test_purge_handles_unusual_file_names(root: Path) -> None:
    write(root / "etc/plog/broker-a b/server.properties")
    write(root / "var/lib/plog/broker-a b/-rf/new\nline")
    run_script("postrm", "purge", root=root)
    assert not (root / "etc/plog").exists()
    assert not (root / "var/lib/plog").exists()


def test_purge_without_any_file_succeeds(tmp_path: Path) -> None:
    assert run_script("postrm", "purge", root=tmp_path) == ""


def mount_namespace() -> list[str]:
    """Return the start of a command line that runs a command in a mount namespace of its own."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespaces, "true"], capture_output=True, timeout=60).returncode:
        missing("a user namespace with mounts (unshare)")
    return namespaces


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
@pytest.mark.parametrize("point", ["broker", "broker/disk", "broker-2/a b", "."])
def test_purge_enters_no_mounted_file_system(root: Path, kind: str, point: str) -> None:
    mount = (
        'mount -t tmpfs tmpfs "$2"'
        if kind == "tmpfs"
        else 'mkdir "$4"; mount --bind "$4" "$2"'  # The same file system.
    )
    target = root / "var/lib/plog" / point
    target.mkdir(exist_ok=True)
    # The mounts end with their namespace, so the wrapper prints what is left.
    wrapper = (
        f'set -e; root=$1; {mount}; mkdir "$2/kept"; echo x >"$2/kept/1.log"; shift 4; '
        '"$@"; cd "$root/var/lib/plog"; find . -type f >"$root/left"'
    )
    other = root.parent / "other"
    around = [*mount_namespace(), "sh", "-c", wrapper, "sh", root, target, "-", other]
    messages = run_script("postrm", "purge", root=root, around=[str(word) for word in around])
    left = set((root / "left").read_text().splitlines())
    mounted = f"./{point}/kept/1.log" if point != "." else "./kept/1.log"
    assert left == {mounted}
    assert "it is a mount point" in messages


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Return a folder with programs that write their names and arguments to its file `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "calls").touch()
    for name in ("dpkg-trigger", "deb-systemd-invoke", "systemctl"):
        add_program(folder / name, f'echo "{name} $*" >>"{folder}/calls"')
    return folder


def add_program(program: Path, script: str) -> None:
    """Write an executable shell script."""
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("version", ["", "0.1.0~deb12u1"])
def test_restart_is_left_to_the_end_of_the_run_of_dpkg(
    calls: Path, tmp_path: Path, version: str
) -> None:
    run_script("postinst", "configure", version, root=tmp_path, path=calls)
    assert (calls / "calls").read_text() == "dpkg-trigger --no-await plog-broker-restart\n"


def add_packages(calls: Path, **states: str) -> None:
    """Let dpkg-query print the state and the source version of packages; `_` stands for `-`."""
    cases = "".join(
        f'*" {name.replace("_", "-")}") echo "{state}" ;;' for name, state in states.items()
    )
    add_program(calls / "dpkg-query", f'case "$*" in {cases} *) exit 1 ;; esac')


def systemd_host() -> list[str]:
    """Return the start of a command line that runs a command on a host which systemd manages."""
    wrapper = 'mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/system; exec "$@"'
    return [*mount_namespace(), "sh", "-euc", wrapper, "sh"]


def call_names(calls: Path) -> list[str]:
    return (calls / "calls").read_text().splitlines()


EARLY_START = {
    "dpkg-trigger --no-await plog-broker-start",
    "systemctl --system daemon-reload",
    "deb-systemd-invoke start plog-broker.service",
}


@pytest.mark.parametrize("state", ["unpacked", "half-configured", "installed"])
def test_new_broker_starts_while_dpkg_configures_other_packages(calls: Path, state: str) -> None:
    add_packages(calls, plog_broker="0.1", python3_plog_accel=f"{state} 0.1")
    run_script("postinst", "configure", "", root="", path=calls, around=systemd_host())
    # The script does not wait for the start.
    eventually(lambda: set(call_names(calls)) == EARLY_START, "start of the broker")


@pytest.mark.parametrize(
    ("old_version", "accel"),
    [
        ("0.0.9", "unpacked 0.1"),
        ("", "not-installed "),
        ("", "config-files 0.1"),
        ("", "installed 0.0.9"),
        ("", None),
    ],
)
def test_start_is_left_to_the_trigger_if_modules_may_still_change(
    calls: Path, old_version: str, accel: str | None
) -> None:
    states = {} if accel is None else {"python3_plog_accel": accel}
    add_packages(calls, plog_broker="0.1", **states)
    run_script("postinst", "configure", old_version, root="", path=calls, around=systemd_host())
    assert call_names(calls) == ["dpkg-trigger --no-await plog-broker-restart"]


@pytest.mark.parametrize(
    ("triggers", "action"),
    [
        ("plog-broker-start", "start"),
        ("plog-broker-restart", "restart"),
        ("plog-broker-start plog-broker-restart", "restart"),
    ],
)
def test_trigger_restarts_only_a_broker_that_may_run_an_earlier_version(
    calls: Path, triggers: str, action: str
) -> None:
    run_script("postinst", "triggered", triggers, root="", path=calls, around=systemd_host())
    words = [line.split() for line in call_names(calls) if "plog-broker.service" in line]
    assert [each[1] for each in words if each[1] in ("start", "restart")] == [action]


def test_broker_is_interested_in_the_triggers_that_its_postinst_activates() -> None:
    script = (DEBIAN / "plog-broker.postinst").read_text()
    activated = set(re.findall(r"dpkg-trigger --no-await (\S+)", script))
    interests = {line.split()[1] for line in lines_of("plog-broker.triggers")}
    assert activated == interests


def add_plugin_cache(root: Path, plugin: str) -> None:
    """Write a cache of plugins as Twisted does: a pickled dictionary whose keys are modules."""
    file = root / "usr/lib/python3/dist-packages/twisted/plugins/dropin.cache"
    file.parent.mkdir(parents=True)
    file.write_bytes(pickle.dumps({plugin: "its description"}, protocol=2))


@pytest.mark.parametrize(
    ("old_version", "plugin", "is_rebuilt"),
    [
        ("", "plog_plugin", False),
        ("", "twisted_web", True),
        ("", None, True),
        ("0.0.9", "plog_plugin", True),
    ],
)
def test_twisted_rebuilds_its_cache_unless_it_lists_the_new_plugin(
    calls: Path, tmp_path: Path, old_version: str, plugin: str | None, is_rebuilt: bool
) -> None:
    if plugin is not None:
        add_plugin_cache(tmp_path, plugin)
    run_script(
        "postinst", "configure", old_version, root=tmp_path, path=calls, package="python3-plog"
    )
    assert call_names(calls) == ["dpkg-trigger --no-await twisted-plugins-cache"] * is_rebuilt


@pytest.mark.parametrize(("action", "is_rebuilt"), [("remove", True), ("upgrade", False)])
def test_twisted_rebuilds_its_cache_after_the_plugin_was_removed(
    calls: Path, tmp_path: Path, action: str, is_rebuilt: bool
) -> None:
    run_script("postrm", action, root=tmp_path, path=calls, package="python3-plog")
    assert call_names(calls) == ["dpkg-trigger --no-await twisted-plugins-cache"] * is_rebuilt


@pytest.mark.parametrize(
    "words", [("postinst", "triggered", "plog-broker-restart"), ("prerm", "remove")]
)
def test_no_service_is_touched_when_another_root_is_configured(
    calls: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """dpkg --root, as used to build images, must not act on the services of this host."""
    run_script(*words, root=tmp_path, path=calls)
    assert (calls / "calls").read_text() == ""


@pytest.mark.parametrize("action", ["upgrade", "failed-upgrade"])
def test_broker_is_not_stopped_before_an_upgrade(calls: Path, tmp_path: Path, action: str) -> None:
    run_script("prerm", action, root=tmp_path, path=calls)
    assert (calls / "calls").read_text() == ""
