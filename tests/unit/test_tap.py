"""plogd/tap.py: settings files that may be missing, and the error for one that must exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.python import usage

from plogd.config import BrokerConfig
from plogd.tap import Options

EXAMPLE = "/usr/share/doc/plog-broker/examples/instance.properties"


def options_of(*words: str | Path) -> Options:
    options = Options()
    options.parseOptions([str(word) for word in words])  # type: ignore[no-untyped-call]
    return options


def config_of(*words: str | Path) -> BrokerConfig:
    return options_of(*words).load().config


@pytest.fixture
def defaults(tmp_path: Path) -> Path:
    """Return a settings file in a directory of its own."""
    (tmp_path / "share").mkdir()
    file = tmp_path / "share" / "broker.properties"
    file.write_text("node.id=3\n")
    return file


@pytest.fixture
def optional(tmp_path: Path) -> Path:
    """Return the path of a missing settings file in an existing directory."""
    (tmp_path / "etc" / "conf.d").mkdir(parents=True)
    return tmp_path / "etc" / "server.properties"


def test_optional_file_overrides_earlier_files(defaults: Path, optional: Path) -> None:
    optional.write_text("node.id=4\n")
    assert config_of("--config", defaults, "--optional-config", optional).node_id == 4


def test_missing_optional_file_has_no_settings(defaults: Path, optional: Path) -> None:
    assert config_of("--config", defaults, "--optional-config", optional).node_id == 3


def test_conf_d_is_read_when_its_optional_file_is_missing(defaults: Path, optional: Path) -> None:
    (optional.parent / "conf.d" / "local.properties").write_text("node.id=5\n")
    assert config_of("--config", defaults, "--optional-config", optional).node_id == 5


def test_optional_file_may_disappear_before_a_reload(defaults: Path, optional: Path) -> None:
    optional.write_text("node.id=4\n")
    options = options_of("--config", defaults, "--optional-config", optional)
    optional.unlink()
    assert options.load().config.node_id == 3


def test_optional_file_that_is_a_dangling_link_is_an_error(optional: Path) -> None:
    """Its settings are wanted; without them the broker would use other directories and ports."""
    optional.symlink_to("no-such-file")
    with pytest.raises(usage.UsageError, match=r"server\.properties: not found"):
        options_of("--optional-config", optional)


def test_invalid_value_of_an_optional_file_is_an_error(optional: Path) -> None:
    optional.write_text("node.id=high\n")
    with pytest.raises(usage.UsageError, match=r"server\.properties:1: node\.id=high"):
        options_of("--optional-config", optional)


def test_missing_file_is_an_error_that_names_the_example(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with pytest.raises(usage.UsageError) as raised:
        options_of("--config", file, "--example", EXAMPLE)
    assert str(raised.value) == (
        f"cannot use the settings:\n{file}: not found; copy {EXAMPLE} there and edit it"
    )


def test_missing_file_without_example_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with pytest.raises(usage.UsageError, match=r"not found$"):
        options_of("--config", file)


def test_data_is_stored_in_the_state_directory_unless_log_dirs_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/plog/broker:/var/lib/other")
    assert config_of().data_dirs == ("/var/lib/plog/broker",)
    assert config_of("-o", "log.dir=/srv/plog").data_dirs == ("/srv/plog",)
