"""A standalone Spark cluster on loopback: a master and its workers, JVMs of pyspark's own jars.

The hosts of a real cluster have Python, but none of the driver's packages. Here, the workers have a
`PATH` without the virtual environment and no `PYTHONPATH`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from plog.cli.spark.installed_packages import spark_home
from tests.helpers.eventually import eventually
from tests.spark.process_tree import EXECUTOR, descendants
from tests.spark.spark_session import JVM_OPTIONS

_STOP_TIMEOUT_S = 30
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A running cluster: the URL of its master, and the processes of its workers."""

    url: str
    workers: tuple[int, ...]

    def executor_of(self, pid: int) -> int:
        """Return the executor that has started the Python worker `pid`."""
        executors = [one for worker in self.workers for one in descendants(worker, EXECUTOR)]
        [found] = [executor for executor in executors if pid in descendants(executor)]
        return found


@contextmanager
def standalone_cluster(folder: Path, *, workers: int) -> Iterator[StandaloneCluster]:
    """Yield the cluster when all workers have joined the master."""
    with ExitStack() as stack:
        log = folder / "master.log"
        master = ["master.Master", "--host", _HOST, "--port", "0", "--webui-port", "0"]
        stack.enter_context(_daemon(log, *master))
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)")[0]
        pids = []
        for number in range(workers):
            work = folder / f"worker-{number}"
            resources = ["--cores", "1", "--memory", "512m", "--work-dir", str(work)]
            own = folder / f"worker-{number}.log"
            worker = ["worker.Worker", "--host", _HOST, "--webui-port", "0", *resources, url]
            pids.append(stack.enter_context(_daemon(own, *worker)))
        _wait_for(log, r"Registering worker (\S+)", workers)
        yield StandaloneCluster(url, tuple(pids))


@contextmanager
def _daemon(log: Path, name: str, *arguments: str) -> Iterator[int]:
    home = spark_home()
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with (
        open(log, "wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=output, env=host_environment(os.environ, home)
        ) as process,
    ):
        try:
            # spark-class replaces itself by the JVM.
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def host_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of a host without the driver's packages."""
    kept = {name: environment[name] for name in ("HOME", "JAVA_HOME") if name in environment}
    # The interpreter that the virtual environment was made with.
    python = Path(sys.base_prefix) / "bin"
    own = Path(sys.prefix) / "bin"
    others = [part for part in environment["PATH"].split(os.pathsep) if Path(part) != own]
    return {
        **kept,
        "PATH": os.pathsep.join([str(python), *others]),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
    }


def _wait_for(log: Path, pattern: str, count: int = 1) -> list[str]:
    """Return the groups of the first `count` matches."""

    def found() -> list[str] | None:
        matches: list[str] = re.findall(pattern, log.read_text(errors="replace"))
        return matches if len(matches) >= count else None

    try:
        return eventually(found, f"{count} lines with {pattern}")
    except AssertionError as error:
        raise AssertionError(f"{error}; the log is {log.read_text()[-3000:]}") from None
