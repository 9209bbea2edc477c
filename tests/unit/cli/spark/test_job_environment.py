"""plog/cli/spark/job_environment.py: what a job and its Spark get."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from plog.cli.options import UsageError
from plog.cli.spark.job_environment import (
    Job,
    Python,
    check_conf,
    job_environment,
    local_file,
    needs_archive,
    submit_arguments,
)

PYTHON = Python(path="/venv/bin/python", version="3.11")
HOME = Path("/venv/lib/pyspark")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def job(**options: Any) -> Job:
    return Job(file=Path("jobs/count.py"), **options)


def made(one: Job, **environment: str) -> dict[str, str]:
    return job_environment(one, PYTHON, HOME, environment)


def conf_of(one: Job) -> dict[str, str]:
    words = submit_arguments(one)
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--conf"]
    return dict(setting.split("=", 1) for setting in settings)


def test_job_and_workers_run_the_running_python() -> None:
    found = made(job(), PATH="/bin", PYSPARK_PYTHON="/other/python")
    assert found["PYSPARK_PYTHON"] == found["PYSPARK_DRIVER_PYTHON"] == PYTHON.path
    assert found["PATH"] == "/bin"


def test_spark_is_that_of_pyspark_with_the_settings_of_the_environment() -> None:
    assert made(job())["SPARK_HOME"] == str(HOME)
    assert "SPARK_CONF_DIR" not in made(job())
    assert made(job(), SPARK_HOME="/opt/spark")["SPARK_CONF_DIR"] == "/opt/spark/conf"
    assert made(job(), SPARK_HOME="/opt", SPARK_CONF_DIR="/etc")["SPARK_CONF_DIR"] == "/etc"


def test_arguments_of_spark_submit_end_with_the_shell() -> None:
    one = job(master="spark://h:7077", conf={"spark.a": "x y"}, archives=["a.zip#a", "b.zip#b"])
    words = shlex.split(made(one)["PYSPARK_SUBMIT_ARGS"])
    assert words == [
        *("--name", "count.py", "--master", "spark://h:7077", "--archives", "a.zip#a,b.zip#b"),
        *("--conf", f"{PUSHDOWN}=true", "--conf", "spark.a=x y", "pyspark-shell"),
    ]


def test_master_is_left_to_spark_unless_it_is_given() -> None:
    assert "--master" not in submit_arguments(job())


def test_name_of_the_application_can_be_given() -> None:
    assert submit_arguments(job(name="hourly"))[:2] == ["--name", "hourly"]


def test_pushdown_is_on_unless_it_is_turned_off() -> None:
    assert conf_of(job()) == {PUSHDOWN: "true"}
    assert conf_of(job(conf={PUSHDOWN: "false"})) == {PUSHDOWN: "false"}


def test_executors_with_an_archive_find_python_by_its_version() -> None:
    one = job(archives=["env.tar.gz#environment"])
    found = made(one, PATH="/bin")
    assert found["PYSPARK_PYTHON"] == found["PYSPARK_DRIVER_PYTHON"] == "python3.11"
    assert found["PATH"] == "/venv/bin:/bin"
    assert conf_of(one)["spark.executorEnv.PYTHONPATH"] == "environment"


def test_own_python_and_path_of_executors_are_kept() -> None:
    conf = {"spark.pyspark.python": "/opt/python", "spark.executorEnv.PYTHONPATH": "/opt/lib"}
    one = job(archives=["env.tar.gz#environment"], conf=conf)
    assert made(one, PATH="/bin")["PYSPARK_PYTHON"] == "/opt/python"
    assert conf_of(one)["spark.executorEnv.PYTHONPATH"] == "environment:/opt/lib"


def test_other_archive_changes_nothing() -> None:
    assert made(job(archives=["data.zip#data"]))["PYSPARK_PYTHON"] == PYTHON.path


def test_setting_that_spark_would_ignore_is_refused() -> None:
    assert check_conf([("spark.a", "1"), ("spark.a", "2")]) == {"spark.a": "2"}
    with pytest.raises(UsageError, match=r"--conf executor.memory is not a setting of Spark"):
        check_conf([("executor.memory", "1g")])


@pytest.mark.parametrize(
    ("archive", "path"),
    [
        ("a/b.tar.gz#environment", "a/b.tar.gz"),
        ("file:/a/b.zip#b", "/a/b.zip"),
        ("file:///a/b.zip#b", "/a/b.zip"),
        ("hdfs://host/b.zip#b", None),
    ],
)
def test_archive_on_another_host_has_no_local_file(archive: str, path: str | None) -> None:
    assert local_file(archive) == (None if path is None else Path(path))


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, False),
        ({"master": "local[2]"}, {"SPARK_HOME": "/opt/spark"}, False),
        ({"master": "spark://host:7077"}, {}, False),
        ({"master": "yarn"}, {}, True),
        ({"conf": {"spark.master": "k8s://host"}}, {}, True),
        ({"conf": {"spark.pyspark.python": "/opt/python3"}}, {}, True),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, True),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, True),
    ],
)
def test_archive_of_pyspark_is_needed_on_yarn_and_by_another_python(
    options: dict[str, Any], environment: dict[str, str], expected: bool
) -> None:
    assert needs_archive(job(**options), environment) is expected
