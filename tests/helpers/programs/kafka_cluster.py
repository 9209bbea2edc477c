"""Several real Apache Kafka brokers, in KRaft mode, as small child processes on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.helpers.programs.kafka_server import KafkaServer


class KafkaCluster:
    """Brokers 1 to `count`; the first one is also the controller, so that it must not stop.

    `racks` contains the racks of brokers, and `settings` those of all brokers.
    """

    def __init__(
        self,
        jars: Path,
        directory: Path,
        *,
        count: int = 3,
        racks: Mapping[int, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.brokers: dict[int, KafkaServer] = {}
        for node_id in range(1, count + 1):
            rack = (racks or {}).get(node_id)
            self.brokers[node_id] = KafkaServer(
                jars,
                directory / str(node_id),
                node_id=node_id,
                voter=self.brokers[1].voter if self.brokers else None,
                settings={**(settings or {}), **({"broker.rack": rack} if rack else {})},
            )

    def start(self) -> None:
        """Start all brokers."""
        for broker in self.brokers.values():
            broker.start()

    def kill(self) -> None:
        """Kill all brokers."""
        for broker in self.brokers.values():
            broker.kill()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())
