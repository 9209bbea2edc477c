"""The base of all scripted clients: connection, API versions, topic ids and timeouts.

A client is a coroutine over `Later`, as the broker's own coroutines are. All its random choices
come from the world's seed. A response that takes longer than a real client would wait is reported
as `stuck`, unless the broker was down or its disk had faults meanwhile.

The clients themselves are in producers.py, consumers.py and admins.py.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from plog.errors import ErrorCode
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from plog.wire.messages.produce import ProduceResponse
from plog.wire.schema import ApiMessage
from tests.sim.checker import Anomaly
from tests.sim.exceptions import has_unexpected_error
from tests.sim.network import Connection, ConnectionLost
from tests.sim.topics import Sight

if TYPE_CHECKING:
    from tests.sim.world import World

Response = TypeVar("Response", bound=ApiMessage)

_HELLO_VERSION = 3
_STAYS = 0.7
"""How often a client of a cluster asks the same broker again for metadata."""
_FIRST_TOPIC_ID_METADATA = 10
_FIRST_TOPIC_ID_METADATA_REQUEST = 12

PASSING_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""Errors that any client may receive while a broker starts, a disk fails or a topic is deleted."""


class Client:
    """One scripted client; `run` is its script."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = random.Random(world.chance.random())
        self.connection: Connection | None = None
        self.versions: dict[int, tuple[int, int]] = {}
        self.wanted: int | None = None
        """In a cluster, the broker to connect to; None for any."""
        self.needs_metadata = True
        """In a cluster, whether a broker has not been found where it was."""
        self._leaders: dict[tuple[str, int], int] = {}
        self._controller_id = -1
        self._metadata_connection: Connection | None = None
        self._connections: dict[int, Connection] = {}
        """In a cluster, the last connection to each broker that was wanted."""

    async def run(self) -> None:
        """Run the script until the world reports that the work is finished."""
        raise NotImplementedError

    # -- requests -----------------------------------------------------------------------------

    async def connected(self) -> Connection:
        """Return the open connection, or a new one as soon as a broker is serving.

        In a cluster, it leads to the wanted broker. Raises ConnectionLost if that is not serving.
        """
        while True:
            if self.world.has_several_brokers and self.wanted is not None:
                self.connection = self._connections.get(self.wanted)
            if self.connection is not None and self.connection.is_open:
                return self.connection
            try:
                self.connection = self._connect(self.wanted)
                await self._hello(self.connection)
            except ConnectionLost:
                self.connection = None
                self.needs_metadata = True
                if self.world.has_several_brokers and self.wanted is not None:
                    self.wanted = None
                    raise
                await self.world.sleep(self.chance.uniform(5, 100))

    def _connect(self, broker_id: int | None) -> Connection:
        if not self.world.has_several_brokers:
            return self.world.network.connect()
        connection = self.world.network.connect_to(broker_id, self.chance)
        if broker_id is not None:
            self._connections[broker_id] = connection
        return connection

    def connect_again(self, connection: Connection) -> Connection:
        """Return one more connection to the broker of another one. Raises ConnectionLost."""
        if not self.world.has_several_brokers:
            return self.world.network.connect()
        return self.world.network.connect_to(connection.broker_id, self.chance)

    async def _hello(self, connection: Connection) -> None:
        request = ApiVersionsRequest(client_software_name="sim", client_software_version="1")
        answer = await self.ask(request, _HELLO_VERSION, ApiVersionsResponse, connection)
        check_code(answer.error_code, "ApiVersions")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def version(self, key: ApiKey, at_least: int = 0, at_most: int = 1 << 15) -> int:
        """Return a version that the broker serves, within the bounds; usually the newest."""
        lowest, highest = self.versions[key]
        lowest, highest = max(lowest, at_least), min(highest, at_most)
        assert lowest <= highest, f"{key.name} is not served in {at_least}-{at_most}"
        return highest if self.chance.random() < 0.5 else self.chance.randint(lowest, highest)

    def serves_topic_ids(self, key: ApiKey, first: int) -> bool:
        """Return whether the broker serves version `first` of an API, the first with topic ids."""
        return self.versions[key][1] >= first

    async def ask(
        self,
        request: ApiMessage,
        version: int,
        answer_type: type[Response],
        connection: Connection | None = None,
        patience_ms: float = 0,
    ) -> Response:
        """Send a request; return the response. Raises ConnectionLost, also after a timeout."""
        connection = connection or await self.connected()
        later = connection.request(request, version)
        watch = self.world.watch(connection, f"{self.name}: {request!r:.200}", patience_ms)
        try:
            answer = await later
        finally:
            watch.cancel()
        assert isinstance(answer, answer_type)
        is_produce = answer_type is ProduceResponse  # Producers handle it themselves.
        if self.world.forgives_bugs and not is_produce and has_unexpected_error(answer):
            connection.drop()
            raise ConnectionLost("an unexpected error: what has become of it is unknown")
        return answer

    def check_produced(self, code: int, what: str) -> None:
        """Like `check_code`, for a batch that was not appended."""
        self.needs_metadata = True
        if not (self.world.forgives_bugs and code == ErrorCode.UNKNOWN_SERVER_ERROR):
            check_code(code, what, (*PASSING_ERRORS, *self.world.cluster_errors))

    # -- topics -------------------------------------------------------------------------------

    async def topics(self) -> Mapping[str, Sight]:
        """Return all topics by name, with their ids; also records them in `Topics`."""
        connection = await self.connected_for_metadata()
        known = self.world.topics.known
        version = self.version(ApiKey.METADATA, _FIRST_TOPIC_ID_METADATA)
        request = MetadataRequest(topics=None)
        answer = await self.ask(request, version, MetadataResponse, connection)
        if answer.error_code:
            check_code(answer.error_code, "Metadata", PASSING_ERRORS)
            return {}
        sights: dict[str, Sight] = {}
        for topic in answer.topics:
            if topic.error_code:
                check_code(topic.error_code, f"Metadata of {topic.name}", PASSING_ERRORS)
                continue
            if topic.is_internal:
                continue  # The contents of internal topics are the broker's own.
            epochs = {one.partition_index: one.leader_epoch for one in topic.partitions}
            leaders = {one.partition_index: one.leader_id for one in topic.partitions}
            name = cast(str, topic.name)
            sights[name] = Sight(topic.topic_id, len(topic.partitions), epochs, leaders)
        self.world.topics.shown(sights, known)
        self._note_brokers(sights, answer.controller_id)
        return sights

    async def touch_topic(self, name: str) -> None:
        """Request one topic's metadata in any version, which may create the topic."""
        await self.connected()
        version = self.version(ApiKey.METADATA, 4)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        answer = await self.ask(request, version, MetadataResponse)
        for topic in answer.topics:
            check_code(topic.error_code, f"Metadata of {name}", PASSING_ERRORS)

    # -- several brokers ----------------------------------------------------------------------

    async def connected_for_metadata(self) -> Connection:
        """Return a connection to any broker, in a cluster often to another one than before."""
        if not self.world.has_several_brokers:
            return await self.connected()
        connection = self._metadata_connection
        if connection is not None and connection.is_open and self.chance.random() < _STAYS:
            return connection
        if connection is not None:
            connection.drop()
        while True:
            try:
                connection = self._metadata_connection = self._connect(None)
                await self._hello(connection)
            except ConnectionLost:
                await self.world.sleep(self.chance.uniform(5, 100))
            else:
                return connection

    def _note_brokers(self, sights: Mapping[str, Sight], controller_id: int) -> None:
        self.needs_metadata = False
        self._controller_id = controller_id
        self._leaders = {
            (name, number): leader
            for name, sight in sights.items()
            for number, leader in sight.leaders.items()
            if leader >= 0
        }

    def go_to(self, topic: str, partition: int) -> None:
        """In a cluster, use the leader of a partition, or any broker if it is unknown."""
        self.wanted = self._leaders.get((topic, partition))

    def go_to_controller(self) -> None:
        """In a cluster, use the controller, or any broker if it is unknown."""
        self.wanted = None if self._controller_id < 0 else self._controller_id

    def go_to_any_leader(self) -> None:
        """In a cluster, use a broker that leads partitions."""
        if self.world.has_several_brokers:
            leaders = sorted(set(self._leaders.values()))
            self.wanted = self.chance.choice(leaders) if leaders else None

    def may_use(self, topic: str, partition: int) -> bool:
        """Whether requests for a partition should go to the broker in use: it is the leader."""
        if not self.world.has_several_brokers:
            return True
        return self._leaders.get((topic, partition)) == self.wanted


def check_code(
    code: int, what: str, allowed: frozenset[ErrorCode] | Sequence[ErrorCode] = ()
) -> None:
    """Raise Anomaly for an error code that the situation does not explain."""
    if code in (ErrorCode.NONE, *allowed):
        return
    name = "crash" if code == ErrorCode.UNKNOWN_SERVER_ERROR else "unexpected-error"
    raise Anomaly(name, f"{what}: {ErrorCode(code).name}")
