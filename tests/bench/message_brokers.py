"""RabbitMQ and ActiveMQ, which the paper compares Kafka with, as processes of the bench.

RabbitMQ is Debian's package with its Erlang, downloaded and unpacked in the cache but never
installed: no service starts, /etc does not change, and root is not needed. ActiveMQ's jars come
from Maven; ActiveMq.java starts its broker. Both stay in the cache, like Kafka's jars.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.bench.peers import HERE, Missing, end_process, free_ports, need, wait_for_port

ACTIVEMQ_VERSION = "5.18.4"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "plog-bench"
_ACTIVEMQ_POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>activemq</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.activemq</groupId><artifactId>activemq-kahadb-store</artifactId>
<version>{ACTIVEMQ_VERSION}</version></dependency>
<dependency><groupId>org.apache.activemq</groupId><artifactId>activemq-stomp</artifactId>
<version>{ACTIVEMQ_VERSION}</version></dependency>
</dependencies></project>
"""


class RabbitMq:
    """A node of Debian's version with its own epmd and default settings."""

    protocol = "amqp"
    metrics_url = ""

    def __init__(self, directory: Path) -> None:
        need("apt-get", "apt-cache", "dpkg")
        self.directory = directory
        self._root = _unpacked_rabbitmq()
        self.version = "RabbitMQ " + next(
            path.name.partition("-")[2] for path in self._root.glob("usr/lib/rabbitmq/lib/rabbit*")
        )
        self._port = free_ports(3)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        """The process id of the Erlang VM."""
        return self._processes[-1].pid

    def start(self) -> None:
        """Start epmd first; otherwise the node starts one that outlives it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self._port}\n"
        )
        for name in ("enabled_plugins", "rabbitmq-env.conf"):
            (self.directory / name).touch()
        epmd = next(self._root.glob("usr/lib/erlang/erts-*/bin/epmd"))
        self._run([str(epmd), "-address", "127.0.0.1", "-port", str(self._port + 1)])
        server = self._root / "usr/lib/rabbitmq/bin/rabbitmq-server"
        process = self._run([str(server), "-noinput"])
        wait_for_port(self._port, process, self.directory / "out")

    def stop(self) -> None:
        """Stop the node, then its epmd."""
        while self._processes:
            process = self._processes.pop()
            end_process(process.pid, process.wait)

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / "out").open("ab") as out:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        here = self.directory
        erlang = self._root / "usr/lib/erlang/bin"
        return {
            **os.environ,
            "HOME": str(here),  # Erlang creates its cookie there.
            "PATH": f"{erlang}{os.pathsep}{os.environ['PATH']}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._port + 1),
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._port + 2),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            # With it, the VM is the started process and not a child of it.
            "RABBITMQ_ALLOW_INPUT": "1",
        }


def _unpacked_rabbitmq() -> Path:
    """Return the folder with the unpacked Debian packages, downloaded on first use."""
    root = CACHE / "rabbitmq"
    if (root / ".complete").exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        listed = _output(
            "apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks"
            " --no-replaces --no-enhances rabbitmq-server"
        )
        # A package is at the start of its line; its dependencies are indented below it.
        names = [line for line in listed.splitlines() if line.startswith("erlang-")]
        if not names:
            raise Missing("apt knows no package rabbitmq-server")
        _output(f"apt-get -qq download rabbitmq-server {' '.join(names)}", folder)
        for package in Path(folder).glob("*.deb"):
            _output(f"dpkg -x {package} {root}")
    erlang = root / "usr/lib/erlang"
    for script in [erlang / "bin/erl", *erlang.glob("erts-*/bin/erl")]:
        script.write_text(script.read_text().replace("/usr/lib/erlang", str(erlang)))
    (root / ".complete").touch()
    return root


def _output(command: str, folder: str | None = None) -> str:
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{command.split()[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


class ActiveMq:
    """ActiveMQ Classic with KahaDB and STOMP, configured never to sync."""

    protocol = "stomp"
    metrics_url = ""
    version = f"ActiveMQ {ACTIVEMQ_VERSION}"

    def __init__(self, directory: Path) -> None:
        need("java", "mvn")
        self.directory = directory
        self._port = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._jars = _activemq_jars()

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        assert self._process is not None, "ActiveMQ is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it with the heap of its own start script."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            "java",
            "-Xms64M",
            "-Xmx1G",
            "-cp",
            f"{self._jars}/*",
            str(HERE / "ActiveMq.java"),
        ]
        out = self.directory / "out"
        with out.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._port), str(self.directory), "NEVER"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for_port(self._port, self._process, out)

    def stop(self) -> None:
        """Stop it if it is running."""
        if self._process is not None:
            end_process(self._process.pid, self._process.wait)
            self._process = None


def _activemq_jars() -> Path:
    folder = CACHE / f"activemq-{ACTIVEMQ_VERSION}"
    if not (folder / ".complete").exists():
        with tempfile.TemporaryDirectory() as project:
            (Path(project) / "pom.xml").write_text(_ACTIVEMQ_POM)
            _output(
                f"mvn -B -q -Dstyle.color=never dependency:copy-dependencies"
                f" -DoutputDirectory={folder}",
                project,
            )
        (folder / ".complete").touch()
    return folder
