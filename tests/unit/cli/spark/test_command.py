"""plog/cli/spark/command.py: what is checked before a job runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plog.cli.main import run_tool
from plog.cli.spark import command
from plog.cli.spark.archive import ArchiveInfo, write_archive
from plog.cli.spark.installed_java import JavaError
from plog.cli.spark.installed_packages import PackageError
from plog.cli.spark.pack import this_python

WAREHOUSE = [
    *("warehouse", "--bootstrap-server", "localhost:9092", "--topic", "clicks"),
    *("--checkpoint", "c", "--output", "w"),
]


def clicks(job: str) -> list[str]:
    """Return the start of a job's command line."""
    return [job, "--bootstrap-server", "localhost:9092", "--topic", "clicks"]


INDEX = [*clicks("search-index"), "--checkpoint", "c", "--output", "i"]
RECOMMEND = [*clicks("recommend"), "--item", "topic", "--output", "o"]


@dataclass
class Machine:
    """A machine on which everything is installed; it records the commands that run jobs."""

    capsys: pytest.CaptureFixture[str]
    commands: list[list[str]] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)

    def spark(self, *words: object) -> tuple[int, str]:
        """Run ``plog spark`` and return its exit code and errors."""
        try:
            code = run_tool("spark", command.configure, [str(word) for word in words])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return code, self.capsys.readouterr().err

    def become(self, words: list[str], environment: dict[str, str]) -> int:
        self.commands.append(words)
        self.environments.append(environment)
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    made = Machine(capsys)
    monkeypatch.setattr(command, "become", made.become)
    monkeypatch.setattr(command, "check_packages", lambda: None)
    monkeypatch.setattr(command, "find_java", lambda _: "/jdk/bin/java")
    monkeypatch.setattr(command, "java_version", lambda _: 17)
    monkeypatch.setattr(command, "spark_home", lambda: Path("/spark"))
    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.touch()
    return path


def test_job_runs_with_its_arguments(machine: Machine, job: Path) -> None:
    assert machine.spark("--conf", "spark.a=b", job, "--conf", "x") == (0, "")
    assert machine.commands == [[sys.executable, str(job), "--conf", "x"]]
    assert "spark.a=b" in machine.environments[0]["PYSPARK_SUBMIT_ARGS"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.py"], "cannot run missing.py: there is no such file"),
        (["."], "cannot run .: it is a folder"),
        (["--conf", "a=b", "JOB"], "--conf a is not a setting of Spark"),
        (["--conf", "a", "JOB"], "'a' is not name=value"),
        (["--archive", "a", "JOB"], "did you mean --archives?"),
        (["--archives", "a.tar.gz", "JOB"], "--archives a.tar.gz has no name"),
        (["--archives", "a.zip#a", "JOB"], "cannot use a.zip: there is no such file"),
        (["--archives", "a.tar.gz#environment", "JOB"], "a.tar.gz: not found"),
    ],
)
def test_wrong_usage_is_one_line(
    machine: Machine, job: Path, words: list[str], message: str
) -> None:
    code, error = machine.spark(*(job if word == "JOB" else word for word in words))
    assert code == 1
    assert message in error
    assert len(error.splitlines()) == 1
    assert machine.commands == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pakc"], "cannot run pakc: there is no such job or file; did you mean pack?"),
        (["warehose"], "cannot run warehose: there is no such job or file; did you mean warehouse"),
        (["warehouse", "--topc=a"], "unrecognized arguments: --topc; did you mean --topic?"),
        (["warehouse"], "the following arguments are required: --bootstrap-server"),
        ([*WAREHOUSE, "--output", "s3://b/t"], "cannot use s3://b/t as --output"),
        ([*WAREHOUSE, "--format", "jsn"], "format 'jsn': did you mean json?"),
        ([*WAREHOUSE, "--format", "csv"], "format csv: set a schema"),
        ([*WAREHOUSE, "--schema-file", "missing"], "missing"),
        (["recommendd"], "there is no such job or file; did you mean recommend"),
        ([*clicks("sessions"), "--checkpoint", "c", "--gap", "1"], "cannot use the gap '1'"),
        ([*clicks("search-index"), "--checkpoint", "c"], "are required: --output"),
        ([*INDEX, "--format", "raw"], "cannot index values in the format raw"),
        ([*INDEX, "--output", "hdfs://h/i"], "cannot use hdfs://h/i as --output"),
        ([*INDEX, "--tokenizer", "word"], "argument --tokenizer: invalid choice: 'word'"),
        ([*RECOMMEND], "set either a checkpoint, for the stream, or the start or end of a range"),
        ([*RECOMMEND, "--from", "2026-01-02", "--to", "2026-01-01"], "its end is not after"),
        ([*RECOMMEND, "--from", "yesterday"], "argument --from"),
    ],
)
def test_wrong_command_line_of_a_job_exits_with_another_code(
    machine: Machine, words: list[str], message: str
) -> None:
    code, error = machine.spark(*words)
    assert code == 2
    assert message in error
    assert len(error.splitlines()) == 1
    assert machine.commands == []


def test_job_of_plog_runs_in_its_own_process(machine: Machine) -> None:
    words = [*WAREHOUSE, "--available-now"]
    assert machine.spark("--master", "local[1]", *words) == (0, "")
    process = [sys.executable, "-m", "plog.cli.spark.job_process"]
    assert machine.commands == [[*process, *words]]
    assert "--name warehouse --master" in machine.environments[0]["PYSPARK_SUBMIT_ARGS"]


def test_job_gets_a_home_without_the_archive_of_pyspark_unless_it_may_need_it(
    machine: Machine, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "pyspark"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setattr(command, "spark_home", lambda: home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for master in ("local[1]", "yarn"):
        assert machine.spark("--master", master, job) == (0, "")
    linked, own = (Path(made["SPARK_HOME"]) for made in machine.environments)
    assert linked.parent == tmp_path / "cache" / "plog"
    assert own == home


def test_help_of_a_job_needs_no_spark(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["warehouse", "--help"]):
        with pytest.raises(SystemExit) as exit_:
            run_tool("spark", command.configure, words)
        assert exit_.value.code == 0
        assert "each record exactly once" in " ".join(capsys.readouterr().out.split())
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nimport {command.__name__}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"pyspark", "pyarrow", "twisted"} & set(done.stdout.split())


def test_missing_requirement_is_one_line(
    machine: Machine, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> None:
        raise error

    monkeypatch.setattr(command, "java_version", lambda _: fail(JavaError("no Java")))
    assert machine.spark(job) == (1, "plog: no Java\n")
    monkeypatch.setattr(command, "check_packages", lambda: fail(PackageError("no pyspark")))
    assert machine.spark(job) == (1, "plog: no pyspark\n")


def test_newer_java_is_a_warning(
    machine: Machine, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "java_version", lambda _: 25)
    code, error = machine.spark(job)
    assert (code, len(machine.commands)) == (0, 1)
    assert error == "plog: /jdk/bin/java is Java 25, which is not tested; Java 17 and 21 are\n"


def test_archive_of_this_version_is_accepted(
    machine: Machine, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "e.tar.gz"
    write_archive(archive, {}, this_python())
    python = tmp_path / "bin" / f"python{this_python().python}"
    python.parent.mkdir()
    python.touch()
    monkeypatch.setattr(sys, "executable", str(python.parent / "python"))
    assert machine.spark("--archives", f"{archive}#environment", job) == (0, "")
    python.unlink()
    code, error = machine.spark("--archives", f"{archive}#environment", job)
    assert code == 1
    assert f"{python.parent} has no {python.name}" in error


def test_archive_of_another_version_is_refused(machine: Machine, job: Path, tmp_path: Path) -> None:
    archive = tmp_path / "e.tar.gz"
    write_archive(archive, {}, ArchiveInfo(plog="0.0.1", python="3.11"))
    code, error = machine.spark("--archives", f"{archive}#environment", job)
    assert (code, machine.commands) == (1, [])
    assert "it was packed for plog 0.0.1, but this is plog" in error
