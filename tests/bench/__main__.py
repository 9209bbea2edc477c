"""``make bench``: a 1 GB access log through kcat and back, then raw requests on plog and on Kafka.

Starts its own broker on a free port with a data directory that is removed afterwards. For Kafka it
uses kafka-up, and skips that half where bash, Java or Maven are missing. Prints one JSON line for
each measurement; exits with 1 if a line of the file got lost.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from plogd.testing.broker_process import BrokerProcess
from tests.bench import clientbench
from tests.bench.meter import Meter, per_message
from tests.helpers.access_log import write_access_log

FILE_BYTES = 1_000_000_000
KAFKA_PORT = 29092
PAIRS = 3
HERE = Path(__file__).parent
TOPIC = "access-log"
RAW_RUNS = {
    "1 x 200 B": ["--batch", "1", "--n", "50000"],
    "50 x 200 B": ["--batch", "50", "--n", "2000000"],
    "500 x 200 B": ["--batch", "500", "--n", "5000000"],
    "100 x 1 KiB": ["--batch", "100", "--size", "1024", "--n", "1000000"],
}


def main() -> int:
    """Everything in turn."""
    with tempfile.TemporaryDirectory(prefix="plog-bench-") as name:
        folder = Path(name)
        with BrokerProcess(folder / "plog") as broker:
            if not _file_through_kcat(broker, folder):
                return 1
            _raw_requests(broker, folder)
    return 0


def _file_through_kcat(broker: BrokerProcess, folder: Path) -> bool:
    """Whether the file comes out as it went in; its figures are printed."""
    path, out = folder / "access.log", folder / "out.log"
    lines = write_access_log(path, FILE_BYTES)
    kcat = ["kcat", "-b", broker.bootstrap_servers, "-t", TOPIC, "-p", "0", "-q"]
    meter = Meter(broker.pid)
    subprocess.run([*kcat, "-P", "-X", "acks=all", "-l", path], check=True)
    _tell("kcat in", per_message(meter.stop(), lines, FILE_BYTES // lines))
    meter.start()
    with out.open("wb") as file:
        subprocess.run([*kcat, "-C", "-e"], stdout=file, check=True)
    _tell("kcat out", per_message(meter.stop(), lines, FILE_BYTES // lines))
    same = filecmp.cmp(path, out, shallow=False)
    print("line for line the same" if same else "THE FILE CAME OUT DIFFERENT", flush=True)
    path.unlink()
    out.unlink()
    return same


def _raw_requests(broker: BrokerProcess, folder: Path) -> None:
    """The same requests on both brokers, in turn, so that both see the same machine."""
    brokers = {"plog": (broker.bootstrap_servers, broker.pid)}
    kafka_pid = _start_kafka(folder)
    if kafka_pid is not None:
        brokers["kafka"] = (f"127.0.0.1:{KAFKA_PORT}", kafka_pid)
    try:
        for what, arguments in RAW_RUNS.items():
            for turn in range(PAIRS):
                for name, target in brokers.items():
                    _raw_pair(f"{name} {what}", target, turn, arguments)
    finally:
        if kafka_pid is not None:
            os.kill(kafka_pid, signal.SIGKILL)


def _raw_pair(label: str, target: tuple[str, int], turn: int, arguments: list[str]) -> None:
    """Produce, then fetch what was produced."""
    bootstrap, pid = target
    topic = "-".join(label.split()) + f"-{turn}"
    common = ["--bootstrap", bootstrap, "--broker-pid", str(pid), "--label", label]
    common += ["--topic", topic, *arguments]
    clientbench.main([*common, "--mode", "rawproduce", "--acks", "all", "--warmup", "20000"])
    clientbench.main([*common, "--mode", "rawfetch", "--delete"])


def _start_kafka(folder: Path) -> int | None:
    """A Kafka that syncs before it acknowledges, as plog does; its pid."""
    missing = [name for name in ("bash", "java", "mvn") if shutil.which(name) is None]
    if missing:
        print(f"no Kafka to compare with: {', '.join(missing)} not installed", flush=True)
        return None
    properties = folder / "kafka.properties"
    properties.write_text("log.flush.interval.messages=1\n")
    done = subprocess.run(
        [HERE / "kafka-up", str(KAFKA_PORT)],
        env={**os.environ, "KAFKA_DATA": str(folder / "kafka"), "KAFKA_PROPS": str(properties)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def _tell(label: str, figures: dict[str, float]) -> None:
    print(json.dumps({"label": label, **figures}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
