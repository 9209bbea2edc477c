"""A real Apache Kafka broker, and ZooKeeper for old versions, as small child processes on loopback.

For tests that need files written by several versions of Kafka, stopped cleanly and restarted on the
same files (the broker of apache_kafka.py only serves requests). The jars are downloaded by Maven
like those of the tools; a line in the broker's log shows that it is ready.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.outside import missing, need_program

_BENCH = Path(__file__).parents[2] / "bench"
_INSTALL_TIMEOUT_S = 600
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 60
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG4J2 = """\
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""
_RELOAD4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def kafka_jars(version: str) -> Path:
    """Return the folder with the jars of a Kafka version; end the test if they are unavailable."""
    for program in ("bash", "java", "mvn"):
        need_program(program)
    done = subprocess.run(
        [_BENCH / "kafka-jars"],
        env={**os.environ, "KAFKA_VERSION": version},
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_S,
    )
    if done.returncode != 0:
        missing(f"Kafka {version} could not be fetched: {done.stderr.strip()[-500:]}")
    return Path(done.stdout.splitlines()[0])


def free_port() -> int:
    """Return an unused loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class JavaServer:
    """A JVM that runs until `stop`; `start` returns as soon as its log contains `ready`."""

    def __init__(self, jars: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._jars = jars
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._reader: threading.Thread | None = None

    def command(self, main: str, *arguments: str) -> list[str]:
        """Return the command line for a class."""
        log4j2 = self._directory / "log4j2.properties"
        log4j2.write_text(_LOG4J2)
        reload4j = self._directory / "log4j.properties"
        reload4j.write_text(_RELOAD4J)
        return [
            "java", *_JVM, f"-Dlog4j2.configurationFile={log4j2}",
            f"-Dlog4j.configuration=file:{reload4j}", "-cp", f"{self._jars}/*", main, *arguments,
        ]  # fmt: skip

    def run(self, ready: str, main: str, *arguments: str) -> None:
        """Start the class `main` and wait for its ready line."""
        is_ready = threading.Event()
        self._process = subprocess.Popen(
            self.command(main, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._directory,
        )
        process = self._process

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self._lines.append(line)
                if ready in line:
                    is_ready.set()
            is_ready.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        is_up = is_ready.wait(_START_TIMEOUT_S) and self._process.poll() is None
        if not is_up or not any(ready in line for line in self._lines):
            self.kill()
            raise AssertionError(f"{main} did not start:\n{''.join(self._lines[-30:])}")

    def stop(self) -> None:
        """Stop it cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(number)
        process.wait(_STOP_TIMEOUT_S)
        assert self._reader is not None
        self._reader.join()


class ZooKeeperServer(JavaServer):
    """A standalone ZooKeeper, from the jars of an old Kafka."""

    def __init__(self, jars: Path, directory: Path) -> None:
        super().__init__(jars, directory)
        self.hosts = f"127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Start it."""
        settings = self._directory / "zoo.cfg"
        settings.write_text(
            f"dataDir={self._directory / 'zk'}\nclientPort={self.hosts.partition(':')[2]}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\ntickTime=500\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self.run("binding to port", main, str(settings))


class KafkaServer(JavaServer):
    """One broker: KRaft, or ZooKeeper mode if `zookeeper` is given. Its data is in `log_dir`.

    In KRaft, it is also the controller, unless `voter` is the `voter` of the broker that is.
    """

    def __init__(
        self,
        jars: Path,
        directory: Path,
        *,
        zookeeper: str | None = None,
        voter: str | None = None,
        node_id: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(jars, directory)
        self.log_dir = directory / "log"
        self.bootstrap_servers = f"127.0.0.1:{free_port()}"
        self.node_id = node_id
        self._zookeeper = zookeeper
        self._is_controller = voter is None
        self.voter = voter or f"{node_id}@127.0.0.1:{free_port()}"
        self._settings = {
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            **(self._zookeeper_settings() if zookeeper else self._kraft_settings()),
            **(settings or {}),
        }

    def _kraft_settings(self) -> dict[str, str]:
        roles, listeners = "broker", f"PLAINTEXT://{self.bootstrap_servers}"
        if self._is_controller:
            roles += ",controller"
            listeners += f",CONTROLLER://{self.voter.partition('@')[2]}"
        return {
            "process.roles": roles,
            "node.id": str(self.node_id),
            "controller.quorum.voters": self.voter,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }

    def _zookeeper_settings(self) -> dict[str, str]:
        return {
            "broker.id": str(self.node_id),
            "zookeeper.connect": str(self._zookeeper),
            "zookeeper.session.timeout.ms": "6000",
        }

    def start(self) -> None:
        """Format the directory if it is new, and start the broker."""
        properties = self._directory / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._settings.items()))
        if self._zookeeper is None and not (self.log_dir / "meta.properties").exists():
            cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"
            subprocess.run(
                self.command(
                    "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)
                ),
                check=True,
                capture_output=True,
                timeout=_START_TIMEOUT_S,
            )
        ready = "started (kafka.server.Kafka"
        self.run(ready, "kafka.Kafka", str(properties))
