"""``python -m examples.cluster``: run ZooKeeper and three brokers until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from examples.cluster.local_cluster import LocalCluster
from examples.cluster.server import CannotStart

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised by the signals that stop the cluster; not an error."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a cluster; return 0 after Ctrl-C or SIGTERM, and 1 if it cannot start."""
    parser = argparse.ArgumentParser(
        prog="./run cluster", description="Run ZooKeeper and three brokers on this machine."
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="folder for data and logs, which is kept (default: a temporary folder, which is"
        " removed)",
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="port of broker 1; the others have the next ports"
    )
    parser.add_argument("--zookeeper-port", type=int, default=2181, help="port of ZooKeeper")
    given = parser.parse_args(argv)
    for number in _STOP_SIGNALS:
        signal.signal(number, _stop)
    with tempfile.TemporaryDirectory(prefix="plog-cluster-") as temporary:
        folder = (given.directory or Path(temporary)).absolute()
        try:
            with LocalCluster(folder, given.port, given.zookeeper_port) as cluster:
                cluster.run()
        except CannotStart as error:
            print(f"plog: {error}", file=sys.stderr)
            return 1
        except Stopped:
            print("The cluster has stopped.", flush=True)
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the stop of the servers.
    for each in _STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    print("Stopping the cluster.", flush=True)
    raise Stopped


if __name__ == "__main__":
    sys.exit(main())
