"""The Twisted face: `Producer`, `Consumer` and `Admin` whose methods return Deferreds.

They run on the reactor they are given, the installed one by default. What Twisted programs are made
of besides, protocols and factories with flow control and services, is in streams.py. What
is said of a method here is all that differs from the other faces.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from plog.client.admin import AdminCore
from plog.client.network.backoff import timed_out
from plog.client.network.cluster import Cluster
from plog.client.faces.consumer_face import ReactorConsumerFace
from plog.client.network.deadline import Deadline
from plog.client.task_completion import TaskCompletion
from plog.client.faces.method_adapters import (
    EXIT_TIMEOUT_S,
    NoCopy,
    check_topics,
    deferred,
    described,
    here,
)
from plog.client.callback_checks import (
    check_assignors,
    check_functions,
    check_interceptors,
    check_partitioner,
)
from plog.client.producer.interceptors import ProducerInterceptor
from plog.client.settings.settings_loader import Servers
from plog.client.producer.partitioner import Partitioner
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.producer.core import ProducerCore
from plog.client.producer.producer_batch import SendHandle
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener, check_listener
from plog.client.producer.record_checks import Headers, Serializer
from plog.client.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from plog.client.transactions.faces import TwistedTransactions
from plog.client.transactions.transactional_producer import producer_core
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.consumer.pending_records import PendingRecords
from plog.client.values import RecordMetadata
from plog.errors import RequestTimedOut

if TYPE_CHECKING:
    from plog.client.assignors import Assignor

log = logging.getLogger("plog.client")


class _Client(NoCopy):
    """A client for Twisted: its cluster and network, on the caller's reactor.

    ``async with`` closes it, in coroutines that run as Deferreds.
    """

    def __init__(
        self, settings: ClientSettings, reactor: Any, *, auto_create_topics: bool = False
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor  # Only who names none wants the installed one.
        self._settings = settings
        self._network = TwistedNetwork.of(reactor, settings)
        self._cluster = Cluster(self._network, settings, auto_create_topics=auto_create_topics)

    def __repr__(self) -> str:
        return described("plog.twisted", self, self._settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close(EXIT_TIMEOUT_S)
        except Exception as failure:  # The first one says more.
            log.warning("closing %r after an error failed: %s", self, failure)

    def close(self, timeout_s: float | None = None) -> Deferred[None]:
        """Close the client; harmless when it is closed."""
        return Deferred.fromCoroutine(self._close(timeout_s))

    async def _close(self, timeout_s: float | None) -> None:
        await self._cluster.close()


class Producer(_Client, TwistedTransactions):
    """Sends records to topics.

        producer = Producer(bootstrap_servers="localhost:9092")
        producer.send("page-views", b"/index.html", key=b"alice").addCallback(print)

    Settings have Kafka's names, with underscores as keywords, or with dots in `config`.

    Raises ConfigError for settings that are wrong.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        reactor: Any = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | Callable[..., int] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_functions(key_serializer=key_serializer, value_serializer=value_serializer)
        check_partitioner(partitioner)
        check_interceptors(interceptors)
        made = ProducerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, **settings
        )
        super().__init__(made, reactor, auto_create_topics=True)
        self._core: ProducerCore[SendHandle] = producer_core(
            self._cluster,
            self._network,
            made,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._begun = 0
        self._waiting: dict[int, None] = {}
        """Records that wait for their topic, or for memory, by when they began to."""
        self._one_came_through = self._network.signal()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Deferred[RecordMetadata]:
        """Send a record; where it is, once that is known.

        Fails with why the record was not taken (SerializationFailed, RecordTooLarge,
        UnknownTopicOrPartition, BufferExhausted after max.block.ms) or not written.
        What is sent while memory is full waits for it: see `ProducerFactory` for flow control.
        """
        record = (topic, value, key, partition, timestamp, headers)
        try:
            handle = None if self._core.has_line else self._core.send(*record)
        except Exception:
            return Deferred.fromCoroutine(_raise(Failure()))
        if handle is not None:
            return _outcome_of(handle)
        return Deferred.fromCoroutine(self._send_soon(*record)).addCallback(_outcome_of)

    async def _send_soon(self, *record: Any) -> SendHandle:
        self._begun += 1
        number = self._begun
        self._waiting[number] = None
        with TaskCompletion(self._came_through, number):
            return await self._core.send_soon(*record)

    def _came_through(self, number: int) -> None:
        del self._waiting[number]
        self._one_came_through.set()

    send_and_wait = send  # Named so by the other faces, where `send` itself tells less.

    def flush(self, timeout_s: float | None = None) -> Deferred[None]:
        """Send what lingers, and wait until every record sent so far has its outcome.

        Records that wait for their topic or for memory count as well. Fails with RequestTimedOut
        if `timeout_s` pass before; the records are still sent.
        """
        return Deferred.fromCoroutine(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None = None) -> None:
        await self._core.flush(await self._until_taken(timeout_s))

    async def _until_taken(self, timeout_s: float | None) -> float | None:
        """Wait until records that wait for their topic or for memory are taken; the time left."""
        deadline = Deadline(self._network, math.inf if timeout_s is None else timeout_s)
        pending = list(self._waiting)
        while pending:
            if pending[-1] not in self._waiting:
                pending.pop()
                continue
            self._one_came_through.clear()
            came = await self._one_came_through.wait(deadline.wait_s)
            if not came and timeout_s is not None:
                waiting = len(self._waiting.keys() & pending)
                raise timed_out(f"a flush ({waiting} records still wait)", timeout_s)
        return deadline.wait_s

    @property
    def is_full(self) -> bool:
        """Whether there is no memory for a batch more: what is sent now waits."""
        return self._core.is_full

    partitions_for = deferred(ProducerCore.partitions_for)
    metrics = here(ProducerCore.metrics)

    async def _close(self, timeout_s: float | None) -> None:
        left_s: float | None = 0.0
        with suppress(RequestTimedOut):
            left_s = await self._until_taken(timeout_s)
        await self._core.close(left_s)
        await self._cluster.close()


async def _raise(failure: Failure) -> Any:
    failure.raiseException()


def _outcome_of(handle: SendHandle) -> Deferred[RecordMetadata]:
    outcome: Deferred[RecordMetadata] = Deferred()

    def done(metadata: RecordMetadata | None, error: Exception | None) -> None:
        if outcome.called:  # Cancelled: nobody wants to know any more.
            return
        if error is None and metadata is not None:
            outcome.callback(metadata)
        else:
            outcome.errback(Failure(error))

    handle.add_outcome(done)
    return outcome


def _call_user(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """Call a listener; it may return a Deferred."""
    return maybeDeferred(function, *arguments)


class Consumer(_Client, ReactorConsumerFace):
    """Reads records of topics.

        consumer = Consumer("page-views", bootstrap_servers="localhost:9092")
        consumer.consume().addCallback(print)

    With a `group_id` the group shares the partitions, and remembers how far they have been read;
    without one this consumer reads all of them, from where ``auto.offset.reset`` says. A listener's
    methods may return Deferreds. One `consume` at a time; `ConsumerFactory` is for who would rather
    be called.

    Raises ConfigError for settings that are wrong.
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
            call_user=_call_user,
        )
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern, listener=listener)

    poll = deferred(PollingConsumer.poll)
    consume = deferred(PollingConsumer.consume)
    consume_arrow = deferred(PollingConsumer.consume_arrow)

    @property
    def _unread(self) -> PendingRecords:
        """Records that were taken, and are not given out yet."""
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
        await self._core.close(timeout_s)
        await self._cluster.close()


class Admin(_Client):
    """Looks after topics, configs, groups and brokers.

        admin = Admin(bootstrap_servers="localhost:9092")
        admin.create_topic("page-views", partitions=3).addCallback(print)

    Raises ConfigError for settings that are wrong.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        reactor: Any = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        made = AdminSettings.from_options(config, bootstrap_servers=bootstrap_servers, **settings)
        super().__init__(made, reactor)
        self._core = AdminCore(self._cluster)

    alter_client_quotas = deferred(AdminCore.alter_client_quotas)
    alter_config = deferred(AdminCore.alter_config)
    alter_configs = deferred(AdminCore.alter_configs)
    alter_group_offsets = deferred(AdminCore.alter_group_offsets)
    alter_partition_reassignments = deferred(AdminCore.alter_partition_reassignments)
    alter_replica_log_dirs = deferred(AdminCore.alter_replica_log_dirs)
    alter_user_scram_credentials = deferred(AdminCore.alter_user_scram_credentials)
    api_versions = deferred(AdminCore.api_versions)
    create_acls = deferred(AdminCore.create_acls)
    create_partitions = deferred(AdminCore.create_partitions)
    create_topic = deferred(AdminCore.create_topic)
    create_topics = deferred(AdminCore.create_topics)
    delete_acls = deferred(AdminCore.delete_acls)
    delete_group = deferred(AdminCore.delete_group)
    delete_group_offsets = deferred(AdminCore.delete_group_offsets)
    delete_groups = deferred(AdminCore.delete_groups)
    delete_records = deferred(AdminCore.delete_records)
    delete_topic = deferred(AdminCore.delete_topic)
    delete_topics = deferred(AdminCore.delete_topics)
    describe_acls = deferred(AdminCore.describe_acls)
    describe_client_quotas = deferred(AdminCore.describe_client_quotas)
    describe_cluster = deferred(AdminCore.describe_cluster)
    describe_config = deferred(AdminCore.describe_config)
    describe_configs = deferred(AdminCore.describe_configs)
    describe_features = deferred(AdminCore.describe_features)
    describe_group = deferred(AdminCore.describe_group)
    describe_groups = deferred(AdminCore.describe_groups)
    describe_log_dirs = deferred(AdminCore.describe_log_dirs)
    describe_producers = deferred(AdminCore.describe_producers)
    describe_topic = deferred(AdminCore.describe_topic)
    describe_topics = deferred(AdminCore.describe_topics)
    describe_user_scram_credentials = deferred(AdminCore.describe_user_scram_credentials)
    elect_leaders = deferred(AdminCore.elect_leaders)
    group_offsets = deferred(AdminCore.group_offsets)
    incremental_alter_configs = deferred(AdminCore.incremental_alter_configs)
    list_config_resources = deferred(AdminCore.list_config_resources)
    list_group_offsets = deferred(AdminCore.list_group_offsets)
    list_groups = deferred(AdminCore.list_groups)
    list_offsets = deferred(AdminCore.list_offsets)
    list_partition_reassignments = deferred(AdminCore.list_partition_reassignments)
    list_topics = deferred(AdminCore.list_topics)
    remove_members = deferred(AdminCore.remove_members)
    unregister_broker = deferred(AdminCore.unregister_broker)
    update_features = deferred(AdminCore.update_features)


__all__ = ["Admin", "Consumer", "Producer"]
