"""Loads without a client library: kcat with a file, an idle broker, a bare disk."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import confluent_load
from tests.bench.meter import Meter, per_message, quantiles_ms
from tests.bench.options import Options
from tests.helpers.access_log import write_access_log

_SYNCED_BYTES = 300
"""Approximate size of a log append for a request with one 200-byte message."""


def kcat(options: Options, meter: Meter) -> dict[str, Any]:
    """Produce an access log of `--file-bytes` line by line and consume it; check its lines."""
    confluent_load.create(options)
    path = Path(options.dir) / "access.log"
    if not path.exists() or path.stat().st_size < options.file_bytes:
        write_access_log(path, options.file_bytes)
    size, lines = path.stat().st_size, _count_lines(path)
    command = ["kcat", "-b", options.bootstrap, "-t", options.topic, "-p", "0", "-q"]
    meter.start()
    subprocess.run([*command, "-P", "-X", f"acks={options.acks}", "-l", path], check=True)
    used_in = per_message(meter.stop(), lines, 1)
    with tempfile.NamedTemporaryFile(dir=options.dir) as out:
        meter.start()
        subprocess.run([*command, "-C", "-e"], stdout=out, check=True)
        used_out = meter.stop()
        if not filecmp.cmp(path, out.name, shallow=False):
            sys.exit("clientbench: the consumed file differs from the original")
    gb = size / 1e9
    return {
        **used_in,
        "size": round(size / lines),
        "mb_s": round(size / used_in["wall_s"] / 1e6, 2),
        "broker_cpu_s_per_gb": round(used_in.get("broker_cpu_s", 0.0) / gb, 3),
        "out_wall_s": used_out["wall_s"],
        "out_other_cpu_s": used_out["other_cpu_s"],
        "out_msgs_s": round(lines / used_out["wall_s"]),
        "out_broker_cpu_s_per_gb": round(used_out.get("broker_cpu_s", 0.0) / gb, 3),
    }


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def idle(options: Options, meter: Meter) -> dict[str, Any]:
    """Send nothing for `--seconds`; measure the broker's CPU."""
    meter.start()
    time.sleep(options.seconds)
    used = meter.stop()
    percent = 100 * used.get("broker_cpu_s", 0.0) / used["wall_s"]
    return {**used, "broker_cpu_pct": round(percent, 3)}


def fsync(options: Options, meter: Meter) -> dict[str, Any]:
    """Append and fdatasync `n` times in a new file in `--dir`."""
    times_us: list[float] = []
    with tempfile.NamedTemporaryFile(dir=options.dir, buffering=0) as file:
        meter.start()
        for _ in range(options.n):
            os.write(file.fileno(), bytes(_SYNCED_BYTES))
            began = time.monotonic_ns()
            os.fdatasync(file.fileno())
            times_us.append((time.monotonic_ns() - began) / 1000)
        used = meter.stop()
    return {**used, "n": options.n, "fdatasync_ms": quantiles_ms(times_us)}
