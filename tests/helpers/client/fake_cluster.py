"""A client's `Cluster` of several brokers that respond immediately, as a test specifies.

    cluster = FakeCluster(leaders={TopicPartition("a", 0): 1})
    cluster.answer = lambda node_id, request: ListOffsetsResponse(...)
    run_blocking(RecordAdmin(cluster.as_cluster()).list_offsets(...))

For behavior that one simulated broker cannot show: which node receives a request or a retry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

from plog.client.network.backoff import Backoff
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.metadata import Broker, ClusterMetadata, PartitionMetadata, TopicMetadata
from plog.client.settings import AdminSettings
from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.schema import ApiMessage

T = TypeVar("T")
R = TypeVar("R", bound=ApiMessage)

ANY = -1
"""The node number in `asked` of a request that any node may serve."""


class FakeNetwork:
    """Time that passes only while sleeping, and no connections."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        self.time_s += seconds

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return [await coroutine for coroutine in coroutines]


class FakeConnection:
    """Uses the highest versions that plog supports, except for those that the test sets."""

    def __init__(
        self,
        versions: Mapping[type[ApiMessage], int],
        api_versions: ApiVersionsResponse,
        unsupported: Collection[type[ApiMessage]] = (),
    ) -> None:
        self._versions = versions
        self._unsupported = unsupported
        self.api_versions = api_versions

    def version_of(self, request: type[ApiMessage]) -> int:
        return self._versions.get(request, request.max_version)

    def speaks(self, request: type[ApiMessage]) -> bool:
        return request not in self._unsupported


class FakeCluster:
    """A cluster of several brokers; `asked` contains (node, request) in order."""

    def __init__(
        self,
        *,
        brokers: Collection[int] = (1, 2, 3),
        leaders: Mapping[TopicPartition, int] | None = None,
        coordinators: Mapping[str, int] | None = None,
        versions: Mapping[type[ApiMessage], int] | None = None,
    ) -> None:
        self.network = FakeNetwork()
        self.settings = AdminSettings(bootstrap_servers=("192.0.2.1:9092",))
        self.leaders = dict(leaders or {})
        self.coordinators = dict(coordinators or {})
        self.brokers = brokers
        self.versions = dict(versions or {})
        self.api_versions = ApiVersionsResponse()
        self.unsupported: set[type[ApiMessage]] = set()
        self.metadata = ClusterMetadata()
        self.answer: Callable[[int, Any], ApiMessage] = _no_answer
        self.asked: list[tuple[int, Any]] = []
        self.refreshed: list[set[str]] = []
        self.forgotten: list[str] = []

    def as_cluster(self) -> Cluster:
        """Return this object, typed as a real cluster."""
        return cast(Cluster, self)

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        return Deadline(self.network, 60.0)  # type: ignore[arg-type]  # As much as it needs.

    def backoff(self, deadline: Deadline | None = None) -> Backoff:
        return Backoff(
            self.network,  # type: ignore[arg-type]
            first_s=0.1,
            longest_s=1.0,
            deadline=deadline or self.deadline(),
        )

    async def refresh(self, topics: Collection[str], **_: object) -> ClusterMetadata:
        self.refreshed.append(set(topics))
        self.metadata = ClusterMetadata(
            cluster_id="fake",
            controller_id=min(self.brokers),
            brokers={n: Broker(id=n, host=f"broker-{n}", port=9092) for n in self.brokers},
            topics={topic: self._topic(topic) for topic in topics},
        )
        return self.metadata

    def _topic(self, name: str) -> TopicMetadata:
        leaders = {p.partition: leader for p, leader in self.leaders.items() if p.topic == name}
        return TopicMetadata(
            name=name,
            error=ErrorCode.NONE if leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            partitions=tuple(
                PartitionMetadata(index=number, leader=leader)
                for number, leader in sorted(leaders.items())
            ),
        )

    async def connection(self, node_id: int, **_: object) -> FakeConnection:
        return FakeConnection(self.versions, self.api_versions, self.unsupported)

    async def ask_node(
        self, node_id: int, request: ApiMessage, response: type[R], **_: object
    ) -> R:
        self.asked.append((node_id, request))
        answer = self.answer(node_id, request)
        assert isinstance(answer, response)
        return answer

    async def ask_any(self, request: ApiMessage, response: type[R], **_: object) -> R:
        return await self.ask_node(ANY, request, response)

    async def ask_controller(
        self, request: ApiMessage, response: type[R], *, retry_on: Callable[[R], bool], **_: object
    ) -> R:
        return await self.ask_node(min(self.brokers), request, response)

    async def coordinator(self, key: str, **_: object) -> int:
        return self.coordinators[key]

    def forget_coordinator(self, key: str) -> None:
        self.forgotten.append(key)

    async def close(self) -> None:
        pass


def _no_answer(node_id: int, request: ApiMessage) -> ApiMessage:
    raise KafkaError("the test has not set `answer`")
