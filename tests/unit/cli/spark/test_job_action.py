"""plog/cli/spark/job_action.py: a job with its arguments, or a subcommand."""

from __future__ import annotations

import argparse

import pytest

from plog.cli.parser import Parser
from plog.cli.spark.job_action import JobAction


def parser() -> Parser:
    made = Parser(prog="plog x")
    made.add_argument("--master")
    tools = made.add_subparsers(action=JobAction, metavar="FILE", required=True)
    tools.add_parser("pack").add_argument("target")
    return made


def parsed(*words: str) -> argparse.Namespace:
    return parser().parse_args(words)


def test_arguments_after_the_file_belong_to_the_job() -> None:
    found = parsed("--master", "a", "job.py", "--master", "b", "pack", "--", "-x")
    assert (found.master, found.file) == ("a", "job.py")
    assert found.arguments == ["--master", "b", "pack", "--", "-x"]


def test_help_after_the_file_belongs_to_the_job() -> None:
    assert parsed("job.py", "--help").arguments == ["--help"]


def test_subcommand_is_not_a_file() -> None:
    found = parsed("pack", "out.tar.gz")
    assert found.target == "out.tar.gz"
    assert not hasattr(found, "file")


def test_file_with_the_name_of_a_subcommand_needs_its_folder() -> None:
    assert parsed("./pack").file == "./pack"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: FILE"),
        (["--mastr", "a", "job.py"], "did you mean --master?"),
        (["--mastr=a", "job.py"], "did you mean --master?"),
        (["--other", "job.py"], "unrecognized arguments: --other; see"),
        (["pack", "a", "b"], "unrecognized arguments: b"),
    ],
)
def test_wrong_option_before_the_file_is_an_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert message in capsys.readouterr().err
