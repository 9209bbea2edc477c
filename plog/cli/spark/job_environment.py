"""The environment in which a job runs: its Python, Spark's settings and the archives. Pure.

pyspark starts Spark with its own ``spark-submit`` when the job creates its session. It passes the
arguments in ``PYSPARK_SUBMIT_ARGS``.

Source: pyspark 4.2 java_gateway.launch_gateway; Spark 4.2 PythonUtils.defaultPythonExec.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from plog.cli.options import UsageError

PACKED: Final = "environment"
"""The name, after ``#``, of an archive of ``plog spark pack``."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_PYTHON: Final = "spark.pyspark.python"
_CONF_FOLDERS: Final = {"HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "YARN_CONF_DIR"}
_EXECUTOR_PATH: Final = "spark.executorEnv.PYTHONPATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the command line describes it; `archives` are ``FILE#NAME``."""

    file: Path
    master: str | None = None
    name: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    archives: Sequence[str] = ()

    @property
    def is_packed(self) -> bool:
        """Return whether the executors find plog in an archive."""
        return any(name_of(archive) == PACKED for archive in self.archives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """The running interpreter: the path of the program, and its version such as ``3.11``."""

    path: str
    version: str

    @property
    def versioned_name(self) -> str:
        """Return the name under which every installation of this version is found."""
        return f"python{self.version}"


def needs_archive(job: Job, environment: Mapping[str, str]) -> bool:
    """Return whether a job may need ``python/lib/pyspark.zip`` in the home of Spark.

    YARN sends the archive to its hosts, and another Python may have no pyspark.
    """
    if _PYTHON in job.conf:
        return True
    master = job.master or job.conf.get("spark.master")
    if master is None:
        # Spark's settings or the job itself may choose YARN, which needs one of these.
        return not _CONF_FOLDERS.isdisjoint(environment)
    return not master.startswith(("local", "spark:"))


def job_environment(
    job: Job, python: Python, spark_home: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the process that runs the job."""
    made = dict(environment)
    # Settings of another installation of Spark stay in effect, but its programs do not.
    if "SPARK_HOME" in made:
        made.setdefault("SPARK_CONF_DIR", os.path.join(made["SPARK_HOME"], "conf"))
    made["SPARK_HOME"] = str(spark_home)
    workers_python = job.conf.get(_PYTHON, python.path)
    if job.is_packed and _PYTHON not in job.conf:
        # Spark runs the same command on the driver and on the executors, which may have Python
        # somewhere else (docs/decisions/0016).
        workers_python = python.versioned_name
        path = made.get("PATH", os.defpath)
        made["PATH"] = os.pathsep.join([os.path.dirname(python.path), path])
    # Spark starts the workers of data sources with the driver's Python, and other workers with
    # the first one. Both run plog.
    made["PYSPARK_PYTHON"] = made["PYSPARK_DRIVER_PYTHON"] = workers_python
    # pyspark splits the text with shlex.
    made["PYSPARK_SUBMIT_ARGS"] = shlex.join(submit_arguments(job))
    return made


def submit_arguments(job: Job) -> list[str]:
    """Return the arguments of spark-submit."""
    # By default, Spark does not push filters down to Python sources, which then read records that
    # the query discards.
    conf = {_PUSHDOWN: "true", **job.conf}
    if job.is_packed:
        # Executors unpack archives into their working directory.
        conf[_EXECUTOR_PATH] = ":".join(filter(None, [PACKED, conf.get(_EXECUTOR_PATH)]))
    arguments = ["--name", job.name or job.file.name]
    if job.master is not None:
        arguments += ["--master", job.master]
    if job.archives:
        arguments += ["--archives", ",".join(job.archives)]
    for name, value in conf.items():
        arguments += ["--conf", f"{name}={value}"]
    # spark-submit requires a program: this name stands for the Python process that starts it.
    return [*arguments, "pyspark-shell"]


def check_conf(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the settings by name. Raises UsageError for names that Spark would ignore."""
    for name, _ in pairs:
        # spark-submit only prints a warning for such a name, and the job runs without the setting.
        if not name.startswith("spark."):
            raise UsageError(
                f"--conf {name} is not a setting of Spark: its name must start with 'spark.'"
            )
    return dict(pairs)


def local_file(archive: str) -> Path | None:
    """Return the file of an archive, or None if it is on another host.

    >>> local_file("deps.tar.gz#environment"), local_file("hdfs://host/deps.tar.gz#environment")
    (PosixPath('deps.tar.gz'), None)
    """
    path = archive.partition("#")[0]
    scheme, separator, rest = path.partition(":")
    if not separator or scheme == "file":
        return Path(rest.removeprefix("//") if separator else path)
    return None


def name_of(archive: str) -> str:
    """Return the name of the folder into which executors unpack an archive.

    >>> name_of("deps.tar.gz#environment")
    'environment'
    """
    return archive.partition("#")[2]
