"""The cluster as the client's parts use it: fresh metadata, connections, questions with patience.

A `Cluster` keeps one connection to each broker it needs, knows who leads what, who coordinates
which group and who controls, and asks again where asking again helps. What an answer means is the
business of who asked. It is used from one thread only, its network's.

Source: KIP-1 to KIP-102 made this what it is; Kafka 4.3 NetworkClient, Metadata, ClientUtils.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from plog.client.backoff import Backoff
from plog.client.connection import Connection
from plog.client.errors import BrokerNotAvailable, ClosedError, error_about
from plog.client.metadata import (
    NO_NODE,
    Broker,
    ClusterMetadata,
    TopicMetadata,
    check_topic_names,
    problem_of,
)
from plog.client.network import Cancelled, Network, Task
from plog.client.node import Node, security_of
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode, KafkaError, PlogError, error_from_code
from plog.types import TopicPartition
from plog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from plog.wire.schema import ApiMessage

if TYPE_CHECKING:
    pass

log = logging.getLogger("plog.client")

R = TypeVar("R", bound=ApiMessage)

_FIRST_COORDINATOR_BATCH = 4
# A topic that was just created may be told as unknown, or without leaders, for a while.
_NOT_YET = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})


class CoordinatorKind(IntEnum):
    """What a coordinator looks after, numbered as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1


class Cluster:
    """See the module's text. `auto_create_topics` lets brokers create the topics asked about."""

    def __init__(
        self, network: Network, settings: ClientSettings, *, auto_create_topics: bool = False
    ) -> None:
        self.network = network
        self.metadata = ClusterMetadata()
        self.trouble: KafkaError | None = None
        """Why the last broker that was asked anything did not answer; None if it did."""
        self.on_update: list[Callable[[ClusterMetadata], None]] = []
        """Called with each new snapshot."""
        self.on_refusal: list[Callable[[KafkaError], None]] = []
        """Called when there is no metadata for a reason that somebody has to do away with."""
        self._settings = settings
        self._security = security_of(settings)
        self._auto_create_topics = auto_create_topics
        self._seeds = [
            Node(network, settings, self._security, -1 - number, host, port)
            for number, (host, port) in enumerate(settings.bootstrap_addresses())
        ]
        self._nodes: dict[int, Node] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._wanted: set[str] = set()
        self._wants_all = False
        self._stale = network.signal()
        self._freshener: Task | None = None
        self._said = ""
        """Why there was no metadata, the last time."""
        self._has_warned = False
        self._is_closed = False

    @property
    def settings(self) -> ClientSettings:
        """What the user has set."""
        return self._settings

    # -- connections --------------------------------------------------------------------------

    async def connection(self, node_id: int) -> Connection:
        """An open connection to a broker, waiting for `reconnect.backoff.ms` where one failed.

        Raises ConnectionFailed, AuthenticationFailed; BrokerNotAvailable for one nobody knows.
        """
        self._check_open()
        node = self._nodes.get(node_id)
        if node is None:
            await self.refresh(())
            node = self._nodes.get(node_id)
        if node is None:
            raise BrokerNotAvailable(f"broker {node_id} is not known")
        return await node.connected()

    def node_apart(self, broker: Broker) -> Node:
        """A broker with a connection of its own, which is the caller's to close.

        For requests whose answers may take long: others would wait behind them.
        """
        return Node(
            self.network, self._settings, self._security, broker.id, broker.host, broker.port
        )

    def idle_connection(self, node_id: int) -> Connection | None:
        """The connection to a broker if it is open: no waiting, for the hot path."""
        node = self._nodes.get(node_id)
        return None if node is None else node.use()

    # -- questions ----------------------------------------------------------------------------

    async def ask_node(
        self,
        node_id: int,
        request: ApiMessage,
        response: type[R],
        *,
        timeout_s: float | None = None,
    ) -> R:
        """Ask one broker, once. Raises what `connection` does, and what breaks on the way."""
        return await self._ask(await self.connection(node_id), request, response, timeout_s)

    async def ask_any(
        self, request: ApiMessage, response: type[R], *, timeout_s: float | None = None
    ) -> R:
        """Ask some broker: another where one fails, until ``default.api.timeout.ms`` have passed.

        Raises the last error then, and at once one that trying again would not cure.
        """
        if self._settings.uses_controllers and self.metadata.controller_id == NO_NODE:
            await self.refresh(())  # Only the active controller knows what is being changed.
        return await self._ask_some(request, response, timeout_s)

    async def _ask_some(
        self,
        request: ApiMessage,
        response: type[R],
        timeout_s: float | None = None,
        backoff: Backoff | None = None,
    ) -> R:
        """As `ask_any`, whatever is known, until `backoff` is over."""
        backoff = backoff or self.backoff()
        while True:
            error: KafkaError | None = None
            for node in self._candidates():
                self._check_open()
                try:
                    answer = await self._ask(await node.connected(), request, response, timeout_s)
                except KafkaError as failure:
                    self.trouble = failure
                    if not failure.retriable:
                        raise
                    error = failure
                else:
                    self.trouble = None
                    self._has_warned = False
                    return answer
                if backoff.is_over:
                    break
            assert error is not None, "there is always a seed to ask"
            if not self._has_warned:  # Once, until one answers: some wait for long.
                log.warning("%s; trying again", str(error).rstrip("."))
                self._has_warned = True
            await backoff.wait_or_raise(error)

    async def ask_controller(
        self,
        request: ApiMessage,
        response: type[R],
        *,
        timeout_s: float | None = None,
        retry_on: Callable[[R], bool] = lambda _: False,
    ) -> R:
        """Ask the controller, again where `retry_on` says that the answer came from another."""
        backoff = self.backoff()
        while True:
            try:
                if self.metadata.controller_id == NO_NODE:
                    await self.refresh(())
                controller = self.metadata.controller_id
                if controller == NO_NODE:  # KRaft: any broker hands it on.
                    answer = await self.ask_any(request, response, timeout_s=timeout_s)
                else:
                    answer = await self.ask_node(controller, request, response, timeout_s=timeout_s)
                if not retry_on(answer) or backoff.is_over:
                    return answer
                error = error_from_code(ErrorCode.NOT_CONTROLLER, f"broker {controller}")
            except KafkaError as failure:
                has_left = failure.code == ErrorCode.BROKER_NOT_AVAILABLE
                if not failure.retriable and not has_left:
                    raise
                error = failure
            await backoff.wait_or_raise(error)
            await self.refresh(())

    def backoff(self, timeout_s: float | None = None) -> Backoff:
        """The waits between tries of one thing, for ``default.api.timeout.ms`` unless told."""
        settings = self._settings
        return Backoff(
            self.network,
            first_s=settings.retry_backoff_ms / 1000,
            longest_s=settings.retry_backoff_max_ms / 1000,
            timeout_s=settings.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s,
        )

    async def _ask(
        self,
        connection: Connection,
        request: ApiMessage,
        response: type[R],
        timeout_s: float | None,
    ) -> R:
        wait_s = connection.throttled_until_s - self.network.now_s()
        if wait_s > 0:
            await self.network.sleep(wait_s)
        answer = await connection.ask(request, response, timeout_s=timeout_s)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:
            connection.throttled_until_s = self.network.now_s() + throttle_ms / 1000
        return answer

    async def any_connection(self) -> Connection:
        """An open connection to some broker, as `ask_any` finds one, and raises."""
        backoff = self.backoff()
        while True:
            self._check_open()
            try:
                return await self._first_reachable()
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                await backoff.wait_or_raise(failure)

    async def _first_reachable(self) -> Connection:
        for candidate in self._candidates():
            try:
                return await candidate.connected()
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                error = failure
        raise error

    def _candidates(self) -> Sequence[Node]:
        """All who could be asked anything: the open and least busy first, the seeds last."""

        active = self.metadata.controller_id if self._settings.uses_controllers else None

        def cost(node: Node) -> tuple[bool, bool, int, float, float]:
            connection = node.open_connection
            busy = connection.in_flight if connection is not None else 0
            is_second = active is not None and node.id != active
            return is_second, connection is None, busy, node.next_try_s, self.network.random()

        known = {(node.host, node.port) for node in self._nodes.values()}
        nodes = sorted(self._nodes.values(), key=cost)
        nodes += sorted((s for s in self._seeds if (s.host, s.port) not in known), key=cost)
        return nodes

    # -- metadata -----------------------------------------------------------------------------

    def want_topics(self, topics: Collection[str]) -> None:
        """Keep these topics' metadata fresh from now on, and no others'.

        Raises InvalidTopicException for what cannot be the name of one.
        """
        check_topic_names(topics)
        self._wanted = set(topics)
        self._keep_fresh()
        if any(topic not in self.metadata.topics for topic in self._wanted):
            self.request_update()

    def add_topic(self, topic: str) -> None:
        """Keep one more topic's metadata fresh."""
        if topic not in self._wanted:
            self.want_topics(self._wanted | {topic})

    @property
    def wants_all_topics(self) -> bool:
        """Whether `want_all_topics` was asked for."""
        return self._wants_all

    def forget_topics(self, topics: Collection[str]) -> None:
        """Nobody needs these topics' metadata any more."""
        self._wanted = self._wanted.difference(topics)

    def want_all_topics(self, wanted: bool) -> None:
        """Keep the metadata of all topics there are fresh, for a subscription by pattern."""
        self._wants_all = wanted
        self._keep_fresh()
        self.request_update()

    def request_update(self) -> None:
        """Something known is stale: ask again soon."""
        self._stale.set()

    async def refresh(
        self,
        topics: Collection[str] | None = None,
        *,
        all_topics: bool = False,
        backoff: Backoff | None = None,
    ) -> ClusterMetadata:
        """Ask for `topics`, by default those wanted; an empty collection asks for brokers only.

        Raises as `ask_any`, when `backoff` is over.
        """
        if self._settings.uses_controllers:
            return await self._refresh_controllers()
        every = all_topics or (topics is None and self._wants_all)
        names = sorted(self._wanted if topics is None else topics)
        request = MetadataRequest(
            topics=None if every else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._auto_create_topics,
        )
        response = await self._ask_some(request, MetadataResponse, backoff=backoff)
        if response.error_code:
            raise error_about(response.error_code, "metadata")
        self._learn(response, replace_topics=every)
        return self.metadata

    async def _refresh_controllers(self) -> ClusterMetadata:
        from plog.client.controllers import ask_controllers  # Few need it.

        self._learn(await ask_controllers(self._ask_some), replace_topics=True)
        return self.metadata

    def _learn(self, response: MetadataResponse, *, replace_topics: bool) -> None:
        self.metadata = self.metadata.updated(response, replace_topics=replace_topics)
        for broker in self.metadata.brokers.values():
            self._place(broker.id, broker.host, broker.port)
        for gone in self._nodes.keys() - self.metadata.brokers.keys():
            self._nodes.pop(gone).close()
        log.debug("%s", self.metadata)
        for listener in tuple(self.on_update):  # One may end another.
            listener(self.metadata)

    def _place(self, node_id: int, host: str, port: int) -> None:
        """A broker is at this address; a connection to another one is of no use."""
        node = self._nodes.get(node_id)
        if node is not None and (node.host, node.port) == (host, port):
            return
        if node is not None:
            node.close()
        self._nodes[node_id] = Node(
            self.network, self._settings, self._security, node_id, host, port
        )

    def _keep_fresh(self) -> None:
        if self._freshener is None and not self._is_closed:
            self._freshener = self.network.spawn(self._freshen(), "refreshing metadata")

    async def _freshen(self) -> None:
        """Refresh when something is stale, or when all of it is old; less often in vain."""
        settings = self._settings
        backoff = self.backoff(math.inf)
        while not self._is_closed:
            await self._stale.wait(settings.metadata_max_age_ms / 1000)
            self._stale.clear()
            for node in (*self._nodes.values(), *self._seeds):
                node.close_if_idle(settings.connections_max_idle_ms / 1000)
            try:
                await self.refresh()
                self._said = ""
            except (Cancelled, ClosedError):
                raise
            except Exception as error:  # Whatever it is: without metadata nothing else goes on.
                self._refresh_failed(error)
                self._stale.set()
            if self._lacks_leaders():
                self._stale.set()
            if not self._stale.is_set:
                backoff = self.backoff(math.inf)
            await backoff.wait()

    def _refresh_failed(self, error: Exception) -> None:
        """Say so, but the same thing once."""
        is_news, self._said = str(error) != self._said, str(error)
        is_bug = not isinstance(error, PlogError)
        level = logging.WARNING if is_news or is_bug else logging.DEBUG
        log.log(level, "no metadata: %s", error, exc_info=error if is_bug else None)
        if isinstance(error, KafkaError) and not error.retriable:
            for listener in tuple(self.on_refusal):
                listener(error)

    def _lacks_leaders(self) -> bool:
        brokers = self.metadata.brokers

        def lacks(topic: TopicMetadata | None) -> bool:
            if topic is None or topic.error:
                return topic is None or topic.error in _NOT_YET
            return not topic.has_leaders or any(p.leader not in brokers for p in topic.partitions)

        return any(lacks(self.metadata.topics.get(name)) for name in self._wanted)

    async def topic(self, name: str, *, timeout_s: float) -> TopicMetadata:
        """A topic that exists and whose partitions have leaders.

        Raises what the brokers say if it stays otherwise for `timeout_s`: UnknownTopicOrPartition,
        LeaderNotAvailable; at once TopicAuthorizationFailed and InvalidTopic.
        """
        backoff = self.backoff(timeout_s)
        check_topic_names((name,))
        # What nobody keeps fresh was perhaps true long ago.
        is_fresh = self._wants_all or name in self._wanted
        known = self.metadata.topics.get(name) if is_fresh else None
        while known is None or known.error or not known.has_leaders:
            try:
                known = (await self.refresh((name,), backoff=backoff)).topics.get(name)
                error = problem_of(name, known)
            except KafkaError as failure:
                error = failure
            if error is not None:
                if not error.retriable:
                    raise error
                await backoff.wait_or_raise(error)
        return known

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The node that leads a partition, None if there is none or none is known."""
        return self.metadata.leader_of(partition)

    # -- coordinators -------------------------------------------------------------------------

    async def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """The node that looks after a group or a transaction, as far as is known.

        Raises GroupAuthorizationFailed and the like; RequestTimedOut or CoordinatorNotAvailable if
        there is none within ``default.api.timeout.ms``.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        backoff = self.backoff()
        while True:
            self._check_open()
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            error = await self._find_coordinator(key, kind, request)
            if error is None:
                return self._coordinators[kind, key]
            if not error.retriable:
                raise error
            await backoff.wait_or_raise(error)

    async def _find_coordinator(
        self, key: str, kind: CoordinatorKind, request: FindCoordinatorRequest
    ) -> KafkaError | None:
        try:
            node = await self._first_reachable()
        except KafkaError as failure:
            if not failure.retriable:
                raise
            return failure
        if node.version_of(request) < _FIRST_COORDINATOR_BATCH:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        try:
            answer = await self._ask(node, request, FindCoordinatorResponse, None)
        except KafkaError as failure:
            return failure
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            if found.error_message:
                return error_from_code(found.error_code, found.error_message)
            return error_about(found.error_code, f"looking for who coordinates {key}")
        self._place(found.node_id, found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return None

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """It has said, or shown, that it is not the one any more."""
        self._coordinators.pop((kind, key), None)

    # -- the end ------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections; what is waiting fails. Harmless when it is closed."""
        self._is_closed = True
        if self._freshener is not None:
            self._freshener.cancel()
        for node in (*self._nodes.values(), *self._seeds):
            node.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed")
