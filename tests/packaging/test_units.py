"""The systemd units name commands, options, files and users that exist, and are consistent."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from plogd.config import load_config
from plogd.tap import Options
from tests.helpers.outside import missing, need_program
from tests.packaging.package_files import ROOT, built_files, shipped_paths

UNITS = ROOT / "systemd"
SERVICES = ("plog-broker.service", "plog-broker@.service")
EXPOSURE_MAX = 15
"""Tenths of what `systemd-analyze security` prints, as its option --threshold expects."""


def directives(unit: str) -> dict[str, list[str]]:
    """Return the values of each directive of a unit."""
    table: dict[str, list[str]] = {}
    for line in (UNITS / unit).read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            table.setdefault(name, []).append(value)
    return table


def value(unit: str, name: str) -> str:
    [only] = directives(unit)[name]
    return only


@pytest.mark.parametrize("unit", SERVICES)
def test_command_and_its_options_exist(unit: str) -> None:
    command, *words = value(unit, "ExecStart").split()
    assert command.removeprefix("/") in built_files()
    known = {name.removesuffix("=") for name in Options().longOpt}
    assert {word.removeprefix("--") for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("unit", SERVICES)
def test_files_of_the_command_are_installed(unit: str) -> None:
    paths = {word for word in value(unit, "ExecStart").split() if word.startswith("/")}
    own = {path for path in paths if path.startswith("/usr/")}
    assert own <= shipped_paths()
    assert len(paths - own) == 1


def test_broker_runs_without_its_conffile_but_an_instance_needs_its_file() -> None:
    assert "--optional-config /etc/plog/server.properties" in value(SERVICES[0], "ExecStart")
    instance = value(SERVICES[1], "ExecStart")
    assert "--config /etc/plog/broker-%i/server.properties" in instance
    assert "--example /usr/share/doc/plog-broker/examples/instance.properties" in instance


def test_package_defaults_are_read_first() -> None:
    for unit in SERVICES:
        first = value(unit, "ExecStart").split()[1:3]
        assert first == ["--config", "/usr/share/plog-broker/broker.properties"]


def test_services_differ_only_in_their_names_and_places() -> None:
    broker, instance = map(directives, SERVICES)
    different = {
        name for name in broker.keys() | instance.keys() if broker.get(name) != instance.get(name)
    }
    assert different == {
        *("Description", "ExecStart", "EnvironmentFile", "StateDirectory", "RuntimeDirectory"),
        "Slice",
    }
    assert instance["Slice"] == ["plog.slice"]
    for name in ("EnvironmentFile", "StateDirectory", "RuntimeDirectory"):
        assert instance[name] == [f"{broker[name][0]}-%i"]


@pytest.mark.parametrize("unit", SERVICES)
def test_service_runs_supervised_as_its_user(unit: str) -> None:
    users = re.findall(r"^u\s+(\S+)", (UNITS / "plog-broker.sysusers").read_text(), re.MULTILINE)
    assert [value(unit, "User")] == users
    assert value(unit, "Type") == "notify"
    assert value(unit, "RestartPreventExitStatus") == "2"
    # pyOpenSSL 23 creates callbacks in writable and executable memory.
    assert "MemoryDenyWriteExecute" not in directives(unit)


def test_tmpfiles_create_the_state_directory_with_its_owner_and_mode() -> None:
    lines = [line.split() for line in (UNITS / "plog-broker.tmpfiles").read_text().splitlines()]
    rows = {words[1]: words[2:5] for words in lines if words and words[0] == "d"}
    unit = SERVICES[0]
    owner = [value(unit, "StateDirectoryMode"), value(unit, "User"), value(unit, "Group")]
    assert rows[f"/var/lib/{value(unit, 'StateDirectory')}"] == owner


def test_socket_has_the_address_and_name_of_the_default_listener() -> None:
    config = load_config([ROOT / "packaging/settings/broker.properties"]).config
    [listener] = config.bound_listeners()
    socket = "plog-broker.socket"
    assert value(socket, "ListenStream") == f"{listener.host}:{listener.port}"
    assert value(socket, "FileDescriptorName") == listener.name
    assert int(value(socket, "Backlog")) == config.socket_listen_backlog_size


@pytest.mark.parametrize("unit", SERVICES)
def test_sandbox_exposes_little(unit: str, tmp_path: Path) -> None:
    analyze = need_program("systemd-analyze")
    version = subprocess.run([analyze, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.split()[1]) < 250:
        missing("systemd-analyze 250 or newer is not installed")
    file = tmp_path / unit.replace("@", "@1")
    shutil.copy(UNITS / unit, file)
    done = subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", file],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
