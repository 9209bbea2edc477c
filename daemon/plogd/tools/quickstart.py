"""The broker in the foreground, after one message has gone in and come out again: ``./run``.

Starts ``python -m plogd`` with the options given, waits until it says that it is ready, sends one
message through the smallest client there is and reads it back before the eyes of the user. Then it
only waits for the broker. Ctrl-C and SIGTERM stop the broker cleanly; its exit code is ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType

from twisted.python import usage

from plog.client.simple import SimpleClient
from plog.errors import PlogError, TopicAlreadyExists
from plog.records.codec import Record
from plogd.tap import Options
from plogd.testing.ready_socket import NotReadyError, ReadySocket

TOPIC = "first-light"
# Recovery of a large log after a crash comes before readiness; its progress is in the log.
_START_TIMEOUT_S = 600.0
_ON_THIS_HOST_ONLY = ["-o", "listeners=PLAINTEXT://127.0.0.1:9092"]
"""Without options: plog-broker's own default, like Kafka's, is every address of the host."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker with `argv` as its command line; its exit code, 1 if the message got lost."""
    arguments = list(sys.argv[1:] if argv is None else argv) or _ON_THIS_HOST_ONLY
    options = Options()
    try:
        options.parseOptions(arguments)  # type: ignore[no-untyped-call]
    except usage.UsageError as error:
        print(f"plog: {error}", file=sys.stderr)
        return 2
    assert options.loaded is not None
    where = ", ".join(str(Path(each).absolute()) for each in options.loaded.config.data_dirs)
    with closing(ReadySocket()) as ready_socket:
        broker = _start(arguments, ready_socket.path)
        try:
            addresses = ready_socket.wait(broker, _START_TIMEOUT_S)
            _send_and_read_back(addresses[0])
        except NotReadyError:  # The broker itself has said why.
            broker.kill()
            return broker.wait() or 1
        except PlogError as error:
            print(f"plog: the first message did not get through: {error}", file=sys.stderr)
            broker.terminate()
            broker.wait()
            return 1
        _say(f"The data lies in {where}. Ctrl-C stops the broker.")
        return broker.wait()


def _start(arguments: list[str], notify_socket: str) -> subprocess.Popen[bytes]:
    """Start the broker; from now on the signals that end programs stop it, once."""
    broker = subprocess.Popen(
        [sys.executable, "-m", "plogd", *arguments],
        env={**os.environ, "NOTIFY_SOCKET": notify_socket},
        # A process group of its own: a terminal's Ctrl-C reaches it only through us.
        process_group=0,
    )

    def stop(_signal: int, _frame: FrameType | None) -> None:
        broker.terminate()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return broker


def _send_and_read_back(address: str) -> None:
    """One message in, the same message out. Raises PlogError."""
    host, _, port = address.rpartition(":")
    text = time.strftime("Hello from plog, %Y-%m-%d %H:%M:%S")
    with SimpleClient(host.strip("[]"), int(port)) as client:
        try:
            client.create_topic(TOPIC)
        except TopicAlreadyExists:  # Not the first run on this data.
            pass
        offset = client.produce(TOPIC, 0, [Record(value=text.encode())])
        _say(f"The broker listens on {address}.")
        _say(f"Sent      {text!r} to topic {TOPIC}; it is durable.")
        record = client.fetch(TOPIC, 0, offset)[0]
        _say(f"Read back {(record.value or b'').decode()!r} from offset {record.offset}.")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
