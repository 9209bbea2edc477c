"""plogd/tools/storage/format_command.py: formatting log directories and printing their identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.main import run_tool
from plogd.log.disk.checkpoint_files import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from plogd.os_files import OsFiles
from plogd.tools.storage.command import configure
from plogd.tools.storage.format_command import info, random_uuid
from tests.helpers.sim.sim_files import SimFiles

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the settings of broker 7, with two log directories that do not exist yet."""
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=7\nlog.dirs={tmp_path}/a,{tmp_path}/b\n")
    return path


def _run(*arguments: object) -> int:
    return run_tool("storage", configure, [*map(str, arguments)])


def _identity(path: Path) -> MetaProperties:
    found = read_meta_properties(OsFiles(), str(path))
    assert found is not None
    return found


def test_random_uuid_never_looks_like_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    ids = {random_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert not any(each.startswith("-") for each in ids)
    assert _run("random-uuid") == 0
    assert len(capsys.readouterr().out.strip()) == 22


def test_format_writes_identity_to_new_directories(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("format", "-t", CLUSTER, "-c", config, "--standalone") == 0
    first, second = _identity(tmp_path / "a"), _identity(tmp_path / "b")
    assert (first.cluster_id, first.node_id) == (CLUSTER, 7)
    assert first.directory_id != second.directory_id
    assert capsys.readouterr().out.splitlines() == [
        f"Formatting metadata directory {tmp_path}/a with metadata.version 3.5-IV2.",
        f"Formatting data directory {tmp_path}/b with metadata.version 3.5-IV2.",
    ]


def test_formatted_directory_is_skipped_only_with_ignore_formatted(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("format", "-t", CLUSTER, "-c", config)
    before = _identity(tmp_path / "a")
    (tmp_path / "b/meta.properties").unlink()
    assert _run("format", "-t", CLUSTER, "-c", config) == 1
    assert "already formatted; use --ignore-formatted" in capsys.readouterr().err
    assert not (tmp_path / "b/meta.properties").exists()
    assert _run("format", "-t", CLUSTER, "-c", config, "--ignore-formatted") == 0
    assert _identity(tmp_path / "a") == before
    capsys.readouterr()
    assert _run("format", "-t", CLUSTER, "-c", config, "-g") == 0
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"


@pytest.mark.parametrize(
    ("cluster_id", "message"),
    [
        ("other", f"belongs to broker 7 of cluster {CLUSTER}"),
        ("a b", "cannot use cluster id 'a b'"),
    ],
)
def test_format_rejects_another_or_invalid_cluster_id(
    config: Path, cluster_id: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("format", "-t", CLUSTER, "-c", config)
    assert _run("format", "-t", cluster_id, "-c", config, "-g") == 1
    assert message in capsys.readouterr().err


def test_info_prints_identity(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("format", "-t", CLUSTER, "-c", config)
    directory_id = _identity(tmp_path / "a").directory_id
    capsys.readouterr()
    assert _run("info", "-c", config) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Found log directories:",
        f"  {tmp_path}/a",
        f"  {tmp_path}/b",
        "",
        f"Found metadata: {{cluster.id={CLUSTER}, directory.id={directory_id}, node.id=7, "
        "version=1}",
        "",
    ]


def test_info_reports_problems() -> None:
    files = SimFiles(["/a", "/b", "/c", "/d", "/e"])
    write_meta_properties(files, "/a", MetaProperties(cluster_id="x", node_id=1))
    write_meta_properties(files, "/b", MetaProperties(cluster_id="y", node_id=1))
    write_meta_properties(files, "/c", MetaProperties(cluster_id="x", node_id=2))
    broken = files.open_append("/e/meta.properties")
    broken.append(b"version=1\n")
    broken.close()
    lines, problems = info(files, ["/a", "/b", "/c", "/d", "/e", "/none"])
    assert problems[:2] == [
        "Mismatched cluster IDs between storage directories.",
        "Mismatched node IDs between storage directories.",
    ]
    assert problems[2] == "/d is not formatted."
    assert "cluster.id is missing" in problems[3]
    assert problems[4] == "/none does not exist"
    assert lines[-7] == "Found problems:"
    lines, problems = info(files, ["/d"])
    assert lines[:3] == ["Found log directory:", "  /d", ""]
    assert lines[3:] == ["Found problem:", "  /d is not formatted.", ""]


def test_format_uses_default_log_dir_when_none_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "server.properties"
    config.write_text("node.id=7\n")
    assert _run("format", "-t", CLUSTER, "-c", config) == 0
    assert _identity(tmp_path / "plog-data").cluster_id == CLUSTER
    assert "directory ./plog-data with" in capsys.readouterr().out


def test_state_directory_is_formatted_when_the_variable_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the broker does in its unit."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "server.properties").write_text("node.id=7\n")
    settings = ("-c", tmp_path / "server.properties")
    assert _run("format", "-t", CLUSTER, *settings, "--standalone") == 0
    assert _identity(tmp_path / "state").node_id == 7
    assert _run("info", *settings) == 0


def test_invalid_setting_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "server.properties"
    config.write_text("node.id=many\n")
    assert _run("info", "-c", config) == 1
    assert "node.id" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        "--no-initial-controllers",
        "--release-version 3.5-IV2",
        "--release-version 3.5 --feature kraft.version=0",
        "--feature metadata.version=11 -f group.version=0 -N",
    ],
)
def test_format_accepts_options_that_match_plog(
    options: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("format", "-t", CLUSTER, "-c", config, *options.split()) == 0
    assert "metadata.version 3.5-IV2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--initial-controllers 7@localhost:9093:AAAAAAAAAAAAAAAAAAAAAA",
            "does not have a controller quorum",
        ),
        ("--release-version 4.0", "writes metadata at level 3.5-IV2; omit the option"),
        ("--release-version 1.0", "Unknown release version '1.0'"),
        ("--release-version 3.5 --feature metadata.version=11", "specify only one"),
        ("--feature metadata.version=21", "supports only level 11"),
        ("--feature kraft.version=1", "a plog broker supports only level 0"),
        ("--feature foo=1", "Kafka does not have this feature"),
        ("--feature kraft.version=x", "the level must be a whole number"),
        ("--add-scram alice", "start with SCRAM-SHA-256"),
    ],
)
def test_format_rejects_options_that_plog_does_not_support(
    options: str, message: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("format", "-t", CLUSTER, "-c", config, *options.split()) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "a").exists()


def test_format_rejects_two_controller_options(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _run("format", "-t", CLUSTER, "-c", config, "-s", "-N")
    assert "not allowed with" in capsys.readouterr().err


def test_version_mapping_and_feature_dependencies_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run("version-mapping", "-r", "3.9-IV0") == 0
    assert capsys.readouterr().out.startswith("metadata.version=21 (3.9-IV0)\nkraft.version=1\n")
    assert _run("feature-dependencies", "--feature", "group.version=1") == 0
    assert capsys.readouterr().out == "group.version=1 has no dependencies.\n"
