"""``./run``: start a broker in the foreground, send one message to it and read the message back.

The script starts ``python -m plogd`` with the given options, waits until the broker reports that it
is ready, sends one message through `SimpleClient`, reads it back and prints both steps. Then it
waits for the broker to exit. Ctrl-C and SIGTERM stop the broker cleanly, and the script exits with
the broker's exit code.
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
# After a crash, the broker recovers its logs before it is ready, and logs the progress.
_START_TIMEOUT_S = 600.0
_ON_THIS_HOST_ONLY = ["-o", "listeners=PLAINTEXT://127.0.0.1:9092"]
"""The default options: without them, plog-broker would listen on every address, as Kafka does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker with `argv` as its command line, and return its exit code.

    Returns 2 for invalid options, and 1 if the first message cannot be sent or read back.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or _ON_THIS_HOST_ONLY
    options = Options()
    try:
        # Parsed here as well as by the broker: an invalid option is reported before a process
        # starts, and the message below needs the data directories.
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
        except NotReadyError as error:
            # A broker that has exited has printed the reason itself.
            if broker.poll() is None:
                print(f"plog: killed the broker: {error}", file=sys.stderr)
            # After a timeout, the broker hangs and might not react to SIGTERM.
            broker.kill()
            # A broker that exits before it is ready has failed, even if its exit code is 0.
            return broker.wait() or 1
        except PlogError as error:
            print(f"plog: cannot send the first message: {error}", file=sys.stderr)
            broker.terminate()
            broker.wait()
            return 1
        _print(f"The data is in {where}. Ctrl-C stops the broker.")
        return ready_socket.wait_for_exit(broker)


def _start(arguments: list[str], notify_socket: str) -> subprocess.Popen[bytes]:
    """Start the broker, and forward SIGINT and SIGTERM to it as SIGTERM."""
    broker = subprocess.Popen(
        [sys.executable, "-m", "plogd", *arguments],
        env={**os.environ, "NOTIFY_SOCKET": notify_socket},
        # The broker gets its own process group, so that Ctrl-C in the terminal reaches it only
        # once, through `stop`.
        process_group=0,
    )

    def stop(_signal: int, _frame: FrameType | None) -> None:
        broker.terminate()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return broker


def _send_and_read_back(address: str) -> None:
    """Send one message and read it back. Raises PlogError."""
    host, _, port = address.rpartition(":")
    text = time.strftime("Hello from plog, %Y-%m-%d %H:%M:%S")
    # An IPv6 address in a status line is in brackets.
    with SimpleClient(host.strip("[]"), int(port)) as client:
        try:
            client.create_topic(TOPIC)
        except TopicAlreadyExists:  # An earlier run created it.
            pass
        offset = client.produce(TOPIC, 0, [Record(value=text.encode())])
        _print(f"The broker listens on {address}.")
        _print(f"Sent      {text!r} to topic {TOPIC}; it is durable.")
        record = client.fetch(TOPIC, 0, offset)[0]
        _print(f"Read back {(record.value or b'').decode()!r} from offset {record.offset}.")


def _print(line: str) -> None:
    # The broker writes to the same output, so the order of lines would otherwise be wrong.
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
