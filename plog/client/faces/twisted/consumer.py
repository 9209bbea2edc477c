"""The Twisted face's `Consumer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, maybeDeferred

from plog.client.callback_checks import (
    check_assignors,
    check_functions,
)
from plog.client.consumer.pending_records import PendingRecords
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener, check_listener
from plog.client.faces.consumer_face import ReactorConsumerFace
from plog.client.faces.method_adapters import (
    check_topics,
    deferred,
)
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.faces.twisted.base import Client
from plog.client.faces.zookeeper_connection import make_zookeeper
from plog.client.settings import ConsumerSettings
from plog.client.settings.settings_loader import Servers

if TYPE_CHECKING:
    from plog.client.assignors import Assignor


def _call_user(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """Call an application's function, which may return a Deferred."""
    return maybeDeferred(function, *arguments)


class Consumer(Client, ReactorConsumerFace):
    """A client that reads records from topics.

        consumer = Consumer("page-views", bootstrap_servers="localhost:9092")
        consumer.consume().addCallback(print)

    With a `group_id`, the members of the group share the partitions, and the group stores the
    committed offsets. Without a group, this consumer reads all partitions and starts at the
    position that ``auto.offset.reset`` selects. The methods of `listener` may return Deferreds.
    Only one `consume` may be in progress. To receive records in a protocol, use `ConsumerFactory`.

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: Servers = None,
        reactor: Any = None,
        group_id: str | None = None,
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        assignors: Sequence[str | Assignor | type[Assignor]] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_topics(topics)
        check_functions(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        check_listener(listener)
        assignors = check_assignors(assignors)
        made = ConsumerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, group_id=group_id, **settings
        )
        super().__init__(made, reactor, auto_create_topics=made.allow_auto_create_topics)
        self._core = PollingConsumer(
            self._cluster,
            self._network,
            made,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            assignors=assignors,
            zookeeper=make_zookeeper(made, self._network.reactor),
            call_user=_call_user,
        )
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern, listener=listener)

    poll = deferred(PollingConsumer.poll)
    consume = deferred(PollingConsumer.consume)
    consume_arrow = deferred(PollingConsumer.consume_arrow)

    @property
    def _unread(self) -> PendingRecords:
        """The records that have been taken but not yet returned."""
        return self._core.unread

    unsubscribe = deferred(PollingConsumer.unsubscribe)
    position = deferred(PollingConsumer.position)
    committed = deferred(PollingConsumer.committed)
    seek_to_committed = deferred(PollingConsumer.seek_to_committed)
    commit = deferred(PollingConsumer.commit)
    beginning_offsets = deferred(PollingConsumer.beginning_offsets)
    end_offsets = deferred(PollingConsumer.end_offsets)
    offsets_for_times = deferred(PollingConsumer.offsets_for_times)
    partitions_for = deferred(PollingConsumer.partitions_for)
    topics = deferred(PollingConsumer.topics)

    async def _close(self, timeout_s: float | None) -> None:
        # The consumer needs the cluster's connections to leave its group, so it closes first.
        await self._core.close(timeout_s)
        await self._cluster.close()
