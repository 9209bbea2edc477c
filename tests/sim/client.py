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

    async def run(self) -> None:
        """Run the script until the world reports that the work is finished."""
        raise NotImplementedError

    # -- requests -----------------------------------------------------------------------------

    async def connected(self) -> Connection:
        """Return the open connection, or a new one as soon as a broker is serving."""
        while self.connection is None or not self.connection.is_open:
            try:
                self.connection = self.world.network.connect()
                await self._hello(self.connection)
            except ConnectionLost:
                self.connection = None
                await self.world.sleep(self.chance.uniform(5, 100))
        return self.connection

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
        if not (self.world.forgives_bugs and code == ErrorCode.UNKNOWN_SERVER_ERROR):
            check_code(code, what, PASSING_ERRORS)

    # -- topics -------------------------------------------------------------------------------

    async def topics(self) -> Mapping[str, Sight]:
        """Return all topics by name, with their ids; also records them in `Topics`."""
        await self.connected()
        known = self.world.topics.known
        version = self.version(ApiKey.METADATA, _FIRST_TOPIC_ID_METADATA)
        answer = await self.ask(MetadataRequest(topics=None), version, MetadataResponse)
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
            sights[cast(str, topic.name)] = Sight(topic.topic_id, len(topic.partitions), epochs)
        self.world.topics.shown(sights, known)
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


def check_code(
    code: int, what: str, allowed: frozenset[ErrorCode] | Sequence[ErrorCode] = ()
) -> None:
    """Raise Anomaly for an error code that the situation does not explain."""
    if code in (ErrorCode.NONE, *allowed):
        return
    name = "crash" if code == ErrorCode.UNKNOWN_SERVER_ERROR else "unexpected-error"
    raise Anomaly(name, f"{what}: {ErrorCode(code).name}")
