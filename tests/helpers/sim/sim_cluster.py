"""A cluster of simulated brokers in virtual time; the test is the controller.

    cluster = SimCluster(3)
    cluster.create("t", [1, 2, 3])
    asked = cluster.produce(b"a")
    cluster.advance(100)
    assert cluster.error_of(asked) == 0

Brokers send real requests to each other over a `PeerNetwork`. The controller is an end of this
network, too: it sends the states in `states` with LeaderAndIsr and UpdateMetadata, and answers
AlterPartition. Each broker has a disk of its own, and all share a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from plog.errors import ErrorCode
from plog.types import TopicPartition, Uuid
from plog.wire.api_keys import ApiKey
from plog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from plog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import CONTROL_HANDLERS, HANDLERS, Row, advertised_by
from plogd.apis.api_versions import handle_api_versions
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.own_requests import OwnRequests
from plogd.metadata.cache import PartitionState, TopicState
from plogd.peers import Peers, VersionedRequest
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.replica.partition import Partition
from plogd.testing.in_memory_peers import InMemoryPeers
from plogd.testing.peer_network import PeerNetwork
from tests.helpers.sim.shared_time import SharedTime
from tests.helpers.sim.sim_broker import Asked, SimBroker, produce_request
from tests.helpers.sim.sim_disk import Chance
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.sim_time import LifeTimers, SimClock, SimTimers

CONTROLLER = 100


def cluster_rows(*more: Row) -> tuple[Row, ...]:
    """Return the table of a broker with the embedded store that accepts control requests."""
    rows = [*HANDLERS, *CONTROL_HANDLERS, *more]

    def handle(request: Any, context: Any, broker: Any) -> ApiVersionsResponse:
        advertised = advertised_by(rows, is_inter_broker=True)
        return handle_api_versions(request, context, broker, advertised)

    is_versions = [row.api_key == ApiKey.API_VERSIONS for row in rows]
    number = is_versions.index(True)
    rows[number] = replace(rows[number], handle=handle)
    return tuple(rows)


def join_cluster(
    broker: SimBroker,
    peers: Peers,
    *,
    broker_epoch: int,
    topic_overrides: Callable[[str], Mapping[str, str]],
) -> ClusterReplicas:
    """Return the parts with which a broker that has no topics takes part in replication."""
    inner = broker.broker
    return ClusterReplicas(
        inner.replica_manager,
        inner.log_manager,
        inner.cache,
        peers,
        inner.ports,
        config=lambda: inner.config,
        broker_epoch=lambda: broker_epoch,
        is_leased=lambda: True,
        topic_overrides=topic_overrides,
        fair_queue=inner.fair_queue,
        stats=inner.topic_stats,
        on_bug=inner.report_bug,
    )


class Sent:
    """A request of the controller, and its outcome when it is known."""

    def __init__(self, later: Any) -> None:
        self.response: Any = None
        self.error: Exception | None = None
        later.then(self._answered, self._failed)

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self.response is not None or self.error is not None

    def _answered(self, response: Any) -> None:
        self.response = response

    def _failed(self, error: Exception) -> None:
        self.error = error


class SimCluster(SharedTime):
    """Brokers 1 to `count`, and the controller."""

    def __init__(self, count: int = 3, *, delay_ms: float = 1.0, **settings: Any) -> None:
        self.timers = SimTimers(SimClock())
        self.network = PeerNetwork(self.timers.clock, self.timers, lambda *_: delay_ms)
        self.brokers: dict[int, SimBroker] = {}
        self.replicas: dict[int, ClusterReplicas] = {}
        self.files: dict[int, SimFiles] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.controller_epoch = 1
        self.broker_epochs: dict[int, int] = {}
        self.stalled: set[int] = set()
        """Brokers whose disks complete no operation, so that nothing becomes durable."""
        self.asked: list[AlterPartitionRequest] = []
        """The AlterPartition requests, oldest first."""
        self.alter_error: Callable[[AlterPartitionRequestPartition], int] = lambda asked: 0
        """Returns the error code for a change of a partition."""
        self._settings = settings
        self._lives: dict[int, LifeTimers] = {}
        self._peers: dict[int, InMemoryPeers] = {}
        alter = Row(
            ApiKey.ALTER_PARTITION,
            2,
            3,
            self._alter_partitions,
            refuse_at_top_level(AlterPartitionResponse),
            only_between_brokers=True,
        )
        self._start(CONTROLLER, SimFiles(["/"]), cluster_rows(alter))
        for one in range(1, count + 1):
            self.start(one)
        self.update_metadata()

    # -- brokers ------------------------------------------------------------------------------

    def _start(self, one: int, files: SimFiles, rows: tuple[Row, ...]) -> SimBroker:
        self._lives[one] = LifeTimers(self.timers)
        ports = SimPorts(one, timers=self._lives[one], files=files)
        broker = SimBroker(ports=ports, node_id=one, rows=rows, **self._settings)
        load_logs = broker.broker._load_logs

        def load_hosted(_: object) -> Any:
            # The embedded store of the broker does not know the topics of the cluster.
            return load_logs(self._topics_on(one))

        setattr(broker.broker, "_load_logs", load_hosted)  # noqa: B010
        broker.start()
        self.network.join(one, broker.dispatch, turn=ports.turn)
        own = OwnRequests(broker.broker, rows)
        self._peers[one] = InMemoryPeers(self.network, one, own, ports.timers)
        return broker

    def start(self, one: int, files: SimFiles | None = None) -> None:
        """Start a broker, by default with an empty disk, in a new broker epoch."""
        self.files[one] = files or SimFiles(["/"])
        broker = self._start(one, self.files[one], cluster_rows())
        self.brokers[one] = broker
        epoch = self.broker_epochs[one] = self.broker_epochs.get(one, one * 10) + 1
        self.replicas[one] = broker.broker.cluster_replicas = join_cluster(
            broker, self._peers[one], broker_epoch=epoch, topic_overrides=self.topic_overrides
        )
        self.replicas[one].start()

    def kill(self, one: int, *, power_loss: Chance | None = None) -> None:
        """End a broker's process; with `power_loss`, its disk may lose what was not synced."""
        self.network.leave(one)
        self._lives[one].end()
        files = self.files[one]
        self.files[one] = files.kill() if power_loss is None else files.crash(power_loss)
        del self.brokers[one], self.replicas[one]
        self.stalled.discard(one)

    def cut(self, one: int, other: int) -> None:
        """Hold back all frames between two brokers."""
        self.network.cut(one, other)
        self.network.cut(other, one)

    def heal(self, one: int, other: int) -> None:
        """Deliver all frames between two brokers again."""
        self.network.heal(one, other)
        self.network.heal(other, one)

    # -- metadata -----------------------------------------------------------------------------

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        """Return the own settings of a topic."""
        return self.configs.get(name, {})

    def _topics_on(self, one: int) -> list[TopicState]:
        """Return the topics with only the partitions that broker `one` has a replica of."""
        return [
            TopicState(
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    state
                    for key, state in self.states.items()
                    if key.topic == name and one in state.replicas
                ),
                config=self.configs.get(name, {}),
            )
            for name, topic_id in self.topic_ids.items()
        ]

    def create(self, name: str, *replicas: Sequence[int], **config: str) -> None:
        """Create a topic; the first replica of each partition is its leader."""
        self.topic_ids[name] = f"id of {name}".encode().ljust(16, b"-")[:16]
        self.configs[name] = {key.replace("_", "."): value for key, value in config.items()}
        keys = []
        for number, of_partition in enumerate(replicas):
            keys.append(TopicPartition(name, number))
            self.states[keys[-1]] = PartitionState(
                partition=number,
                leader=of_partition[0],
                leader_epoch=0,
                replicas=tuple(of_partition),
                isr=tuple(of_partition),
                partition_epoch=0,
            )
        self.publish(*keys, is_new=True)
        self.advance(50)

    def change(self, name: str = "t", number: int = 0, **fields: Any) -> PartitionState:
        """Change a partition's state without sending it; return the new state."""
        key = TopicPartition(name, number)
        state = self.states[key]
        fields.setdefault("partition_epoch", state.partition_epoch + 1)
        self.states[key] = replace(state, **fields)
        return self.states[key]

    def elect(
        self,
        leader: int,
        name: str = "t",
        number: int = 0,
        *,
        isr: Iterable[int] | None = None,
        wait_ms: float = 50,
    ) -> None:
        """Make `leader` the leader in a new epoch, and send the state to all live brokers.

        By default, all live replicas are in the ISR. Returns after `wait_ms`.
        """
        state = self.states[name, number]  # type: ignore[index]  # equal to its TopicPartition
        live = tuple(one for one in state.replicas if one in self.brokers)
        self.change(
            name,
            number,
            leader=leader,
            leader_epoch=state.leader_epoch + 1,
            isr=live if isr is None else tuple(isr),
        )
        self.publish(TopicPartition(name, number))
        self.advance(wait_ms)

    def publish(self, *keys: TopicPartition, is_new: bool = False) -> dict[int, Sent]:
        """Send the states of partitions to their live replicas, and to all live brokers."""
        sent: dict[int, Sent] = {}
        for one in sorted(self.brokers):
            of_broker = [key for key in keys if one in self.states[key].replicas]
            if of_broker:
                sent[one] = self.send(one, self.leader_and_isr(one, of_broker, is_new=is_new))
        self.update_metadata(*keys)
        return sent

    def send(self, one: int, request: ApiMessage, version: int | None = None) -> Sent:
        """Send a request of the controller, by default in the newest version."""

        def build(newest: int) -> ApiMessage:
            return request

        if version is None:
            asked: Any = VersionedRequest(type(request), build)
        else:
            asked = request
        return Sent(self._peers[CONTROLLER].ask(one, asked, "control"))

    def leader_and_isr(
        self,
        one: int,
        keys: Iterable[TopicPartition],
        *,
        is_new: bool = False,
        states: Mapping[TopicPartition, PartitionState] | None = None,
        **fields: Any,
    ) -> LeaderAndIsrRequest:
        """Return a request with the states of partitions; `fields` replaces the epochs."""
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for key in keys:
            state = (states or self.states)[key]
            topic_id = self.topic_ids.get(key.topic, b"?" * 16)
            topic = topics.setdefault(
                key.topic, LeaderAndIsrTopicState(topic_name=key.topic, topic_id=topic_id)
            )
            topic.partition_states.append(
                LeaderAndIsrPartitionState(
                    partition_index=key.partition,
                    controller_epoch=self.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    partition_epoch=state.partition_epoch,
                    replicas=list(state.replicas),
                    is_new=is_new,
                )
            )
        epochs = {
            "controller_id": CONTROLLER,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.broker_epochs[one],
        }
        return LeaderAndIsrRequest(topic_states=list(topics.values()), **(epochs | fields))

    def update_metadata(self, *keys: TopicPartition) -> None:
        """Send the live brokers and the states of some partitions to all live brokers."""
        for one in sorted(self.brokers):
            self.send(one, self.metadata_request(one, *keys))

    def metadata_request(self, one: int, *keys: TopicPartition) -> UpdateMetadataRequest:
        """Return the request that `update_metadata` sends to a broker."""
        topics: dict[str, UpdateMetadataTopicState] = {}
        for key in keys:
            state = self.states[key]
            topic = topics.setdefault(
                key.topic,
                UpdateMetadataTopicState(topic_name=key.topic, topic_id=self.topic_ids[key.topic]),
            )
            topic.partition_states.append(
                UpdateMetadataPartitionState(
                    partition_index=key.partition,
                    controller_epoch=self.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    zk_version=state.partition_epoch,
                    replicas=list(state.replicas),
                )
            )
        return UpdateMetadataRequest(
            controller_id=CONTROLLER,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epochs[one],
            topic_states=list(topics.values()),
            live_brokers=[
                UpdateMetadataBroker(
                    id=other,
                    endpoints=[
                        UpdateMetadataEndpoint(port=9092, host=f"b{other}", listener="PLAINTEXT")
                    ],
                    rack=f"rack-{other}",
                )
                for other in sorted(self.brokers)
            ],
        )

    def _alter_partitions(
        self, request: AlterPartitionRequest, context: Any, broker: Any
    ) -> AlterPartitionResponse:
        self.asked.append(request)
        name_by_id = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        self._alter(name_by_id[topic.topic_id], one) for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _alter(
        self, name: str, asked: AlterPartitionRequestPartition
    ) -> AlterPartitionResponsePartition:
        state = self.states[name, asked.partition_index]  # type: ignore[index]
        error = self.alter_error(asked)
        if not error and asked.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        if not error and asked.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        if error:
            return AlterPartitionResponsePartition(
                partition_index=asked.partition_index, error_code=error
            )
        isr = tuple(one.broker_id for one in asked.new_isr_with_epochs)
        state = self.change(name, asked.partition_index, isr=isr)
        return AlterPartitionResponsePartition(
            partition_index=asked.partition_index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(isr),
            partition_epoch=state.partition_epoch,
        )

    # -- clients ------------------------------------------------------------------------------

    def produce(
        self, *values: bytes, name: str = "t", number: int = 0, to: int | None = None, **more: Any
    ) -> Asked:
        """Start a produce request to the leader, or to broker `to`."""
        leader = self.states[name, number].leader if to is None else to  # type: ignore[index]
        request = produce_request(name, *values, partition=number, **more)
        return self.brokers[leader].begin(request, 9)

    @staticmethod
    def error_of(asked: Asked) -> int:
        """Return the error code of a finished produce request."""
        assert asked.is_done, "still waiting"
        code: int = asked.response().responses[0].partition_responses[0].error_code
        return code

    # -- state of the replicas ----------------------------------------------------------------

    def partition(self, one: int, name: str = "t", number: int = 0) -> Partition:
        """Return the replica on broker `one`."""
        return self.brokers[one].broker.replica_manager.topics.partitions[name, number]

    def _replicas_of(self, name: str, number: int) -> list[int]:
        replicas = self.states[name, number].replicas  # type: ignore[index]
        return [one for one in sorted(replicas) if one in self.brokers]

    def end_offsets(self, name: str = "t", number: int = 0) -> dict[int, int]:
        """Return the log end offsets of the live replicas."""
        return {
            one: self.partition(one, name, number).log.log_end_offset
            for one in self._replicas_of(name, number)
        }

    def high_watermarks(self, name: str = "t", number: int = 0) -> dict[int, int]:
        """Return the high watermarks of the live replicas."""
        return {
            one: self.partition(one, name, number).high_watermark
            for one in self._replicas_of(name, number)
        }

    def records(self, one: int, name: str = "t", number: int = 0) -> bytes:
        """Return all bytes of a replica's active segment."""
        log = self.partition(one, name, number).log
        region = log.read(0, 1 << 30, end_offset=log.log_end_offset).region
        assert region is not None
        data = region.read()
        region.close()
        return data
