"""A real Apache ZooKeeper on loopback, and its shell, as references for `plog zookeeper-shell`.

A server starts in about a second. It is an ensemble of one, so that it can be reconfigured, by the
superuser `SUPERUSER`; it also listens for TLS, and enforces its hard quotas.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.certificates import Authority
from tests.helpers.eventually import eventually
from tests.helpers.outside import missing
from tests.helpers.zookeeper_jars import zookeeper_class_path

_SHELL_TIMEOUT_S = 60
_JVM = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")
# User and password, and the SHA-1 in ZooKeeper's configuration.
SUPERUSER = "super:secret"
_SUPER_DIGEST = base64.b64encode(hashlib.sha1(SUPERUSER.encode()).digest()).decode()
_QUIET = "<configuration><root level='OFF'/></configuration>"


def make_certificates(directory: Path) -> Path:
    """Write ca.pem, server.pem, and client.pem, whose key has the password `secret`."""
    authority = Authority()
    authority.truststore(directory / "ca.pem")
    authority.server("127.0.0.1").keystore(directory / "server.pem")
    authority.client().keystore(directory / "client.pem", "secret")
    return directory


class ZooKeeperServer:
    """A server with its data below `directory`; ``with`` kills it at the end.

    `certificates` is the directory of `make_certificates`: with them, `tls_address` serves TLS and
    requires client certificates.
    """

    def __init__(self, directory: Path, certificates: Path) -> None:
        self._class_path = zookeeper_class_path()
        self._directory = directory
        (directory / "logback.xml").write_text(_QUIET)
        plain, tls, quorum, election = free_ports(4)
        self.address, self.tls_address = f"127.0.0.1:{plain}", f"127.0.0.1:{tls}"
        self.member = f"127.0.0.1:{quorum}:{election}:participant;{self.address}"
        (directory / "data").mkdir()
        (directory / "data" / "myid").write_text("1")
        settings = {
            "tickTime": 500,
            "initLimit": 10,
            "syncLimit": 10,
            "dataDir": directory / "data",
            "server.1": self.member,
            "standaloneEnabled": "false",
            "reconfigEnabled": "true",
            "enforceQuota": "true",
            "secureClientPort": tls,
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": certificates / "server.pem",
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": certificates / "ca.pem",
            "ssl.trustStore.type": "PEM",
            "admin.enableServer": "false",
        }
        self._config = directory / "zoo.cfg"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.start()

    def start(self) -> None:
        """Start it, also again after `stop`."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop().
        self._process = subprocess.Popen(
            self._java("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config)),
            stdout=self._errors,
            stderr=self._errors,
        )
        try:
            eventually(self._answers, "connection to ZooKeeper")
        except BaseException:
            self.stop()
            raise

    def shell(
        self, chroot: str, *command: str, lines: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run ZooKeeper's own shell."""
        main = "org.apache.zookeeper.ZooKeeperMain"
        return subprocess.run(
            self._java(main, "-server", self.address + chroot, *command),
            input=lines,
            capture_output=True,
            text=True,
            timeout=_SHELL_TIMEOUT_S,
            env={**os.environ, "TZ": "UTC"},
        )

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = (
            f"-Dlogback.configurationFile={self._directory}/logback.xml",
            "-Dzookeeper.extendedTypesEnabled=true",
            f"-Dzookeeper.DigestAuthenticationProvider.superDigest=super:{_SUPER_DIGEST}",
        )
        return [*_JVM, *options, "-cp", self._class_path, main, *arguments]

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            self._errors.seek(0)
            missing(f"ZooKeeper exited immediately: {self._errors.read().decode()[-500:]}")
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), 1) as probe:
                probe.sendall(b"srvr")
                # It listens before it serves.
                return b"Mode: leader" in probe.recv(4096)
        except OSError:
            return False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process within the block, as if its machine did not respond."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> ZooKeeperServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill it; repeated calls are harmless."""
        self._process.kill()
        self._process.wait()
        self._errors.close()


def free_ports(count: int) -> list[int]:
    """Return unused loopback ports, all of them different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
