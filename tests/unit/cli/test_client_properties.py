"""plog/cli/client_properties.py: precedence of flags, properties and files."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from plog.cli.client_properties import add_client_options, client_config, known_to
from plog.cli.options import UsageError, add_bootstrap_option
from plog.client.settings import AdminSettings


def _parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_bootstrap_option(parser, required=False)
    add_client_options(parser, "producer")
    return parser.parse_args(words)


def test_flags_override_properties_and_properties_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nlinger.ms=1\nbatch.size=1\nbootstrap.servers=file:1\n")
    arguments = _parsed(
        "--command-config", str(file), "--command-property", "linger.ms=2",
        "--producer-property", "batch.size=2", "--bootstrap-server", "line:2",
    )  # fmt: skip
    flags = {"batch.size": 3, "retries": None}
    assert client_config(arguments, flags, defaults={"acks": "0", "client.id": "x"}) == {
        "client.id": "x",
        "acks": "1",
        "linger.ms": "2",
        "batch.size": 3,
        "bootstrap.servers": "line:2",
    }


def test_bootstrap_server_is_required_but_may_be_a_property() -> None:
    arguments = _parsed("--command-property", "bootstrap.servers=a:1")
    assert client_config(arguments) == {"bootstrap.servers": "a:1"}
    with pytest.raises(UsageError, match="--bootstrap-server"):
        client_config(_parsed())


def test_known_to_drops_settings_of_other_clients() -> None:
    config = {"client.id": "x", "acks": "all", "bootstrap.servers": "a:1"}
    assert known_to(AdminSettings, config) == {"client.id": "x", "bootstrap.servers": "a:1"}
