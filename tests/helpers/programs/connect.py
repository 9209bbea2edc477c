"""Kafka Connect workers with Kafka's own file source and file sink."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.eventually import eventually

# Lines are passed unchanged, offsets are written often, plugins are found by service files.
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "200",
    "plugin.discovery": "service_load",
    "consumer.heartbeat.interval.ms": "200",
}


def source(file: Path, topic: str) -> dict[str, str]:
    """Return a connector that sends each line of a growing file."""
    return {
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
    }


def sink(file: Path, topic: str) -> dict[str, str]:
    """Return a connector that appends each record to a file."""
    return {
        "connector.class": "FileStreamSink",
        "tasks.max": "1",
        "file": str(file),
        "topics": topic,
    }


def write_properties(path: Path, *settings: Mapping[str, str]) -> Path:
    """Write a file of settings; later ones override earlier ones."""
    merged = {name: value for each in settings for name, value in each.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
    return path


def wait_until_equal(copy: Path, original: Path) -> None:
    """Return when the sink's file equals the source's file."""
    eventually(
        lambda: copy.exists() and copy.stat().st_size >= original.stat().st_size,
        f"{copy.name} as long as {original.name}",
    )
    assert copy.read_bytes() == original.read_bytes()


def free_port() -> int:
    """Return an unused port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class ConnectRest:
    """The REST interface of a worker, which may be starting or rebalancing."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def put_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change its settings."""
        body = json.dumps(dict(config)).encode()
        eventually(
            lambda: self._request("PUT", f"/connectors/{name}/config", body), f"PUT of {name}"
        )

    def wait_until_running(self, name: str) -> set[str]:
        """Return the workers that run the connector and its task, once both are running."""

        def running() -> set[str]:
            status = self._request("GET", f"/connectors/{name}/status") or {}
            parts = [status.get("connector", {}), *status.get("tasks", [])]
            is_running = len(parts) == 2 and all(x.get("state") == "RUNNING" for x in parts)
            return {part["worker_id"] for part in parts} if is_running else set()

        return eventually(running, f"running connector {name}")

    def _request(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any] | None:
        """Return the response; None if the worker does not respond."""
        request = urllib.request.Request(
            self._url + path, body, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409, 500, 503):
                raise
            return None
        except OSError:
            return None
