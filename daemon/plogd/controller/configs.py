"""Change the settings of topics and brokers in the metadata store.

The requested changes to a resource's settings are applied together or not at all, and the response
is sent only when they are durable. Concurrent changes to a resource do not overwrite each other: if
another change was written first, the later change starts over from the new settings. Any broker
changes settings, as in Kafka with ZooKeeper: clients send these requests to any broker.

broker.py watches the store and applies the changes.
Called on the reactor thread. Source: Kafka 4.3 ConfigurationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from plog.errors import InvalidRequest, KafkaStorageError, UnknownTopicOrPartition
from plogd.concurrency import OneAtATime, shielded
from plogd.config import BrokerConfig
from plogd.config.dynamic_config import broker_id_of, check_change
from plogd.controller.controller import Controller
from plogd.controller.topic_creation import validate_name
from plogd.metadata.store import Change, Key, MetadataStore, Written
from plogd.ports import Later, spawn
from plogd.topic_config import validate_overrides

_MAX_TRIES: Final = 100
"""Number of attempts: each one fails only if another change was written."""

Alter: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns the new settings for the given current settings. Raises the KafkaError for the client."""
Check: TypeAlias = Callable[[Mapping[str, str], Mapping[str, str]], None]
"""Raises an error unless the second settings may replace the first."""


class Configs:
    """Changes the settings of topics and of this broker; `config` returns the broker's settings."""

    def __init__(
        self,
        store: MetadataStore,
        controller: Controller,
        config: Callable[[], BrokerConfig],
        is_topic: Callable[[str], bool],
    ) -> None:
        """`is_topic` returns whether a topic exists as far as this broker knows.

        It is called only while this broker is not the controller, which knows all topics.
        """
        self._store = store
        self._controller = controller
        self._config = config
        self._is_topic = is_topic
        # Otherwise, concurrent requests to this broker would conflict with each other.
        self._broker_alterations = OneAtATime()

    def alter_topic(self, name: str, alter: Alter, *, validate_only: bool) -> Later[None]:
        """Change the settings of a topic. Fails with the KafkaError for the client."""
        if not self._controller.is_active:
            return shielded(spawn(self._alter_topic(name, alter, validate_only)))
        # Never during another operation on the topic: otherwise, a deletion could complete before
        # the write, and the settings of the deleted topic would remain. If another broker writes
        # them, the next creation of the topic replaces them.
        return self._controller.run_exclusively(
            name, lambda: spawn(self._alter_topic(name, alter, validate_only))
        )

    async def _alter_topic(self, name: str, alter: Alter, validate_only: bool) -> None:
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        validate_name(name)

        def check(_old: Mapping[str, str], new: Mapping[str, str]) -> None:
            validate_overrides(new)
            if not self._exists(name):
                raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")

        await self._write(("config", "topic", name), alter, check, validate_only)

    def _exists(self, name: str) -> bool:
        if self._controller.is_active:
            return self._store.get(("topic", name))[0] is not None
        return self._is_topic(name)

    def alter_broker(self, name: str, alter: Alter, *, validate_only: bool) -> Later[None]:
        """Change the settings of this broker, or of all brokers if `name` is empty."""
        # A client that disconnects must not cancel a change that may already be in the log.
        return self._broker_alterations.run_unless_cancelled(
            lambda: self._alter_broker(name, alter, validate_only)
        )

    async def _alter_broker(self, name: str, alter: Alter, validate_only: bool) -> None:
        node_id = self._config().node_id
        if name and broker_id_of(name) != node_id:
            raise InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {name}")

        def check(old: Mapping[str, str], new: Mapping[str, str]) -> None:
            check_change(self._config(), old, new, one_broker=bool(name))

        # Not `name`, because a client can also write the id as 01 or +1.
        entity = str(node_id) if name else ""
        await self._write(("config", "broker", entity), alter, check, validate_only)

    async def _write(self, key: Key, alter: Alter, check: Check, validate_only: bool) -> None:
        for _ in range(_MAX_TRIES):
            value, version = self._store.get(key)
            old: Mapping[str, str] = value or {}
            # Each round calls `alter`, because APPEND and SUBTRACT depend on the current value.
            new = alter(old)
            check(old, new)
            if validate_only or new == old:  # Unchanged settings do not need a record.
                return
            # Without settings, the key is removed, as when the records are replayed.
            change = Change(key=key, value=new or None, expected=version)
            [outcome] = await self._store.write([change])
            if isinstance(outcome, Written):
                return
            # Another change was written first: derive this change again from the new settings.
        raise KafkaStorageError(
            f"cannot change the settings: {_MAX_TRIES} other changes were written at the same time;"
            " try again"
        )
