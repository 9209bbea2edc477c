"""Process metrics, read from the test's own process."""

from __future__ import annotations

from plogd.http.process_metrics import register_process_metrics
from plogd.metrics import Registry


def test_process_metrics_have_values() -> None:
    registry = Registry()
    register_process_metrics(registry, start_time_seconds=12.5)
    samples = dict(
        line.split(" ")
        for line in registry.expose().decode().splitlines()
        if not line.startswith("#")
    )
    assert samples["process_start_time_seconds"] == "12.5"
    assert float(samples["process_cpu_seconds_total"]) > 0
    assert int(samples["process_resident_memory_bytes"]) > 2**20
    assert 3 <= int(samples["process_open_fds"]) <= int(samples["process_max_fds"])
