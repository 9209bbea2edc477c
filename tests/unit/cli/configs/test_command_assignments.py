"""plog/cli/configs/command.py: assignments of --add-config, including lists."""

from __future__ import annotations

import pytest

from plog.cli.configs.command import parse_assignments
from plog.cli.options import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=[1,2],b=3", {"a": "1,2", "b": "3"}),
        ("a=[1,2],b=[3,4]", {"a": "1,2", "b": "3,4"}),
        ("a=", {"a": ""}),
        (" a = 1 , b=x=y", {"a": "1", "b": "x=y"}),
        (
            "SCRAM-SHA-256=[iterations=8192,password=secret]",
            {"SCRAM-SHA-256": "iterations=8192,password=secret"},
        ),
    ],
)
def test_assignments_are_parsed(text: str, values: dict[str, str]) -> None:
    assert parse_assignments(text) == values


@pytest.mark.parametrize("text", ["a", "a=1,b", "=1", ""])
def test_invalid_assignment_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not name=value"):
        parse_assignments(text)
