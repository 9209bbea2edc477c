"""The settings of a broker while it runs: those from files, overridden by those of clients.

`DynamicBrokerConfig` keeps both, and broker.py applies the effective configuration. The rules for
precedence and validation are in dynamic_config.py. Source: Kafka 4.3 DynamicBrokerConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from plogd.config.broker_config import BrokerConfig, DynamicSettings
from plogd.config.dynamic_config import describe_changes, overlay


class DynamicBrokerConfig:
    """The settings from the files, and the settings that the metadata store contains."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self._dynamic = DynamicSettings()

    def update_static(self, static: BrokerConfig) -> None:
        """Replace the settings from the files."""
        self._static = static

    def update(self, entity: str, texts: Mapping[str, str]) -> str | None:
        """Replace the settings of this broker's id, or of all brokers if `entity` is empty.

        Returns what has changed, for the log; None if they are the settings of another broker.
        """
        old = self._dynamic
        if entity == "":
            self._dynamic = dataclasses.replace(old, cluster=texts)
            return describe_changes(old.cluster, texts)
        if entity == str(self._static.node_id):
            self._dynamic = dataclasses.replace(old, broker=texts)
            return describe_changes(old.broker, texts)
        return None

    def effective(self) -> tuple[BrokerConfig, list[str]]:
        """Return the effective configuration, and the problems with values that cannot be used."""
        return overlay(self._static, self._dynamic)
