"""`LocalCluster`: starts ZooKeeper and three brokers, and stops them in the opposite order."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from examples.cluster.server import CannotStart, Server, check_port
from examples.cluster.zookeeper import start_zookeeper, wait_until_it_serves
from plogd.testing.ready_socket import NotReadyError, ReadySocket

_IDS: Final = (1, 2, 3)
_START_TIMEOUT_S: Final = 600.0
"""After a crash, a broker recovers its logs before it is ready."""
_POLL_S: Final = 0.2


class LocalCluster:
    """The servers, with data and logs below `folder`; ``with`` starts and stops them.

    Broker 1 listens on `port`, and the others on the next ports.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        zookeeper_port: int,
        report: Callable[[str], None] = lambda line: print(line, flush=True),
    ) -> None:
        self.folder = folder
        self._zookeeper_port = zookeeper_port
        self._ports = {one: port + number for number, one in enumerate(_IDS)}
        self._report = report
        self._brokers: dict[int, Server] = {}
        self._zookeeper: Server | None = None
        self._ready_sockets = ExitStack()

    # -- start --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        # Also after a signal, so that no server keeps running.
        except BaseException:
            self._end()
            raise
        return self

    def _start(self) -> None:
        check_port(self._zookeeper_port, "ZooKeeper", "--zookeeper-port")
        for one, port in self._ports.items():
            check_port(port, f"broker {one}", "--port")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._zookeeper = start_zookeeper(self.folder, self._zookeeper_port)
        wait_until_it_serves(self._zookeeper, self._zookeeper_port)
        self._started(self._zookeeper, self._zookeeper_port)
        # Open until the end, because the brokers also report later events.
        ready = {one: self._ready_sockets.enter_context(closing(ReadySocket())) for one in _IDS}
        # All at the same time, because each needs a moment to import its modules.
        for one in _IDS:
            self._brokers[one] = self._start_broker(one, ready[one].path)
        for one in _IDS:
            broker = self._brokers[one]
            try:
                ready[one].wait(broker.process, _START_TIMEOUT_S)
            except NotReadyError as error:
                raise broker.failed(f"it is {error}") from error
            self._started(broker, self._ports[one])

    def _start_broker(self, one: int, notify_socket: str) -> Server:
        config = self._config(one)
        config.write_text(
            f"broker.id={one}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self._ports[one]}\n"
            f"log.dirs={self.folder / f'broker-{one}'}\n"
            "plog.metadata.store=zookeeper\n"
            f"zookeeper.connect=127.0.0.1:{self._zookeeper_port}/plog\n"
            "zookeeper.session.timeout.ms=6000\n"
            "default.replication.factor=3\n"
            # Only one broker on a machine can have the default port.
            "plog.http.port=0\n"
        )
        return Server(
            f"broker {one}",
            [sys.executable, "-m", "plogd", "--config", str(config)],
            self.folder / f"broker-{one}.log",
            {**os.environ, "NOTIFY_SOCKET": notify_socket},
        )

    def _config(self, one: int) -> Path:
        return self.folder / f"broker-{one}.properties"

    def _started(self, server: Server, port: int) -> None:
        name = server.name[0].upper() + server.name[1:]
        self._report(f"{name} listens on 127.0.0.1:{port}. Its process id is {server.process.pid}.")

    # -- run and stop -------------------------------------------------------------------------

    def run(self) -> None:
        """Print what to try, and report brokers that end, until a signal handler raises.

        Raises CannotStart if ZooKeeper ends.
        """
        first = f"127.0.0.1:{self._ports[1]}"
        self._report(f"Data and logs are in {self.folder}. Try, in another terminal:")
        self._report("  . .venv/bin/activate")
        self._report(
            f"  plog topics --bootstrap-server {first} --create --topic clicks --partitions 6"
            " --replication-factor 3"
        )
        self._report(f"  plog topics --bootstrap-server {first} --describe --topic clicks")
        self._report("Ctrl-C stops the cluster.")
        reported: set[Server] = set()
        while True:
            time.sleep(_POLL_S)
            for one, broker in self._brokers.items():
                ended = broker.end_reason()
                if ended and broker not in reported:
                    reported.add(broker)
                    self._report(f"Broker {one} {ended}. To start it again:")
                    self._report(f"  plog-broker --config {self._config(one)}")
            if self._zookeeper is not None and (ended := self._zookeeper.end_reason()):
                raise CannotStart(f"stopped the cluster: ZooKeeper {ended}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        # In turn, because each broker hands over its partitions to one that is still running.
        for broker in self._brokers.values():
            broker.terminate()
            broker.wait()
        # Last, because the brokers remove their registrations.
        if self._zookeeper is not None:
            self._zookeeper.terminate()
            self._zookeeper.wait()
        self._ready_sockets.close()
