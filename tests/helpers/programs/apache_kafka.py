"""A real Apache Kafka broker, for tests that compare plog's responses or files with Kafka's.

One KRaft broker on loopback, started by tests/bench/kafka-up with the jars from Maven. It needs a
few seconds and half a gigabyte, so whole packages of tests share one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.outside import missing, need_program

_KAFKA_UP = Path(__file__).parents[2] / "bench" / "kafka-up"
_START_TIMEOUT_S = 600
"""The first start downloads the jars."""


class ApacheKafka:
    """A broker below `directory`, with `settings` that override Kafka's defaults.

    With a `tls_port`, it also listens there, for TLS.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str], *, tls_port: int | None = None
    ) -> None:
        for program in ("bash", "java", "mvn"):
            need_program(program)
        port = _free_port_pair()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self.data_dir = directory / "log"
        if tls_port is not None:
            settings = {**settings, **_listeners(port, tls_port)}
        properties = directory / "extra.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        environment = os.environ | {
            "KAFKA_DATA": str(directory),
            "KAFKA_PROPS": str(properties),
            "KAFKA_HEAP_OPTS": "-Xms256m -Xmx512m -XX:TieredStopAtLevel=1",
        }
        done = subprocess.run(
            [_KAFKA_UP, str(port)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT_S,
        )
        if done.returncode != 0:
            missing(f"Apache Kafka could not be started: {done.stderr.strip()[-500:]}")
        self._pid = int(done.stdout.split()[-1])

    def stop(self) -> None:
        """Stop it and delete its files."""
        os.kill(self._pid, signal.SIGKILL)


def _listeners(port: int, tls_port: int) -> dict[str, str]:
    """Return the listeners of kafka-up, and one for TLS."""
    both = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    return {
        "listeners": f"{both},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": both,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    }


def _free_port_pair() -> int:
    """Return a free port whose successor, which kafka-up uses for the controller, is also free."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
