"""plog/cli/admin_client.py: client settings, topic patterns and error output."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from plog.cli.admin_client import admin_settings, print_errors, topic_filter
from plog.cli.options import UsageError
from plog.client.settings import ConfigError
from plog.errors import KafkaError


def _arguments(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"bootstrap_servers": "a:1", "command_config": None, **given})


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=b:2\nclient.id=mine\nacks=all\n")
    settings = admin_settings(_arguments(command_config=str(path)))
    [address] = settings.bootstrap_addresses()
    assert tuple(address) == ("a", 1)
    assert settings.client_id == "mine"


def test_timeout_option_sets_the_api_timeout(tmp_path: Path) -> None:
    assert admin_settings(_arguments(timeout_ms=1234)).default_api_timeout_ms == 1234


def test_missing_servers_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no server specified; use --bootstrap-server HOST:PORT"):
        admin_settings(_arguments(bootstrap_servers=None))
    file = tmp_path / "client.properties"
    file.write_text("client.id=me")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is not set"):
        admin_settings(_arguments(bootstrap_servers=None, command_config=str(file)))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders.*", "orders-2", True),
        ("a, b|c", "c", True),
        ('"quoted"', "quoted", True),
        ("a.b", "axb", True),
        (None, "x", True),
    ],
)
def test_topic_filter_matches_a_list_of_patterns(
    pattern: str | None, name: str, matches: bool
) -> None:
    assert topic_filter(pattern)(name) is matches


def test_invalid_pattern_is_an_error() -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        topic_filter("a(")


def test_errors_are_printed_on_separate_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_errors([]) == 0
    assert print_errors([("t", KafkaError("is gone")), ("u", KafkaError("too"))]) == 1
    assert capsys.readouterr().err == "plog: t: is gone\nplog: u: too\n"
