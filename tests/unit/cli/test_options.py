"""plog/cli/options.py: the options that several tools share."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli import options
from plog.cli.options import UsageError
from plog.cli.parser import Parser


def _parser() -> Parser:
    parser = Parser(prog="plog x")
    options.add_admin_options(parser)
    options.add_property_option(
        parser,
        "--formatter-property",
        "--property",
        dest="properties",
        description="print.key=true",
    )
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--topic")
    parser.add_argument("--if-exists", action="store_true")
    return parser


@pytest.mark.parametrize("name", ["--bootstrap-server", "--bootstrap-servers"])
def test_bootstrap_server_has_two_spellings(name: str) -> None:
    assert _parser().parse_args([name, "a:1,b:2"]).bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize("name", ["--zookeeper", "--zk-tls-config-file"])
def test_zookeeper_option_is_an_error_that_names_bootstrap_server(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["--list", name, "localhost:2181"])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"plog: {name} was removed because the tools connect to brokers; use")


def test_both_spellings_of_a_property_option_fill_one_list() -> None:
    line = ["--bootstrap-server", "a:1", "--property", "a=1", "--formatter-property", "b=2=3"]
    assert _parser().parse_args(line).properties == [("a", "1"), ("b", "2=3")]


@pytest.mark.parametrize("text", ["a", "=b", " =b"])
def test_invalid_assignment_is_an_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["--bootstrap-server", "a:1", "--property", text])
    assert "is not name=value" in capsys.readouterr().err


def test_number_below_the_minimum_is_an_error() -> None:
    assert options.positive("7") == 7
    assert options.not_negative("0") == 0
    assert options.number_list("0, 2,1") == [0, 2, 1]
    for text in ("0", "-1", "x", ""):
        with pytest.raises(Exception, match=r"less than 1|not a whole number"):
            options.positive(text)


def test_properties_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# TLS\nsecurity.protocol=SSL\nssl.truststore.location : /a\\\n  b\n")
    assert options.read_properties(str(path)) == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ab",
    }
    path.write_text("a=\\u00g0\n")
    with pytest.raises(UsageError, match=r"client\.properties, line 1"):
        options.read_properties(str(path))


def test_one_of_requires_exactly_one_option() -> None:
    actions = ("--list", "--describe")
    given = _parser().parse_args(["--bootstrap-server", "a:1", "--list"])
    assert options.one_of(given, actions) == "--list"
    for line in ([], ["--list", "--describe"]):
        with pytest.raises(UsageError, match="exactly one of --list and --describe"):
            options.one_of(_parser().parse_args(["--bootstrap-server", "a:1", *line]), actions)


def test_only_with_rejects_an_option_without_its_action() -> None:
    given = _parser().parse_args(["--bootstrap-server", "a:1", "--list", "--if-exists"])
    options.only_with(given, ["--list"], "--if-exists", "--topic")
    with pytest.raises(UsageError, match="--if-exists requires --describe"):
        options.only_with(given, ["--describe"], "--topic", "--if-exists")
