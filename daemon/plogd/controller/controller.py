"""The controller: it creates topics, adds partitions and deletes topics.

`Controller` campaigns to become the controller, and passes operations to the `ActiveController` of
the current term. When the term ends, all its state is dropped, its operations fail with
NotController, and this broker campaigns again. A store with a single broker never ends the term.

An operation continues if its client disconnects. Called on the reactor thread.
Source: Kafka 3.9 KafkaController.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from plog.errors import NotController
from plog.types import Uuid
from plogd.concurrency import shielded
from plogd.controller.active_controller import ActiveController
from plogd.controller.brokers import Brokers
from plogd.controller.cluster.cluster_term import Cluster, ClusterTerm
from plogd.controller.cluster.partition_reassignments import TopicAccess
from plogd.controller.controller_context import ControllerContext
from plogd.controller.partition_creation import NewPartitions
from plogd.controller.partition_index import NO_PARTITIONS, PartitionCounts
from plogd.controller.replica_placement import Assignments
from plogd.controller.term import Term, not_controller
from plogd.controller.topic_creation import Defaults, NewTopic, TopicPlan, check_total
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import TopicState
from plogd.metadata.store import Key, MetadataStore
from plogd.ports import Later, Random, Report, failed, silence, spawn

T = TypeVar("T")


class Controller:
    """This broker's candidacy, and the operations on topics while it is the controller.

    Call `load` first. Without being the controller, all operations fail with NotController.
    """

    def __init__(
        self,
        *,
        store: MetadataStore,
        brokers: Brokers,
        defaults: Callable[[], Defaults],
        random: Random,
        fair_queue: FairQueue,
        report: Report = silence,
        cluster: Cluster | None = None,
    ) -> None:
        """With `cluster`, requests are sent to several brokers, instead of to `brokers`."""
        self._store = store
        self._brokers = brokers
        self._defaults = defaults
        self._random = random
        self._queue = fair_queue
        self._report = report
        self._cluster = cluster
        self._cluster_term: ClusterTerm | None = None
        self._active: ActiveController | None = None
        """The controller of the present term, even while it loads; None while campaigning."""
        self._is_stopped = False
        self._loaded: Later[list[TopicState]] = Later()
        self.on_elected: Callable[[list[TopicState]], None] = _ignore
        """Called with all topics whenever this broker has become the controller again. The first
        time, `load` returns them. Some may be new: they were being created or expanded when the
        former term ended."""

    # -- terms --------------------------------------------------------------------------------

    def load(self) -> Later[list[TopicState]]:
        """Become the controller and load all topics; called once. This may wait for years."""
        self._store.resigned(self._end_term)
        self._store.watch(("config", "topic"), self._config_changed)
        self._store.watch(("config", "broker"), self._settings_changed)
        self._store.watch(("delete_topic",), self._deletion_marked)
        self._store.watch(("broker",), self._brokers_changed)
        self._store.watch(("reassign_partitions",), self._reassignment_requested)
        self._store.watch(("log_dir_failure",), self._log_dir_failed)
        spawn(self._campaign()).then(_ignore, self._failed)
        return self._loaded

    async def _campaign(self) -> None:
        while not self._is_stopped:
            term = Term(self._store, await self._store.campaign(), self._queue)
            await self._lead(term)
            # The next term must not load a state that a write of this one changes afterwards.
            await term.settled()

    async def _lead(self, term: Term) -> None:
        """Be the controller until the term is over."""
        if self._is_stopped:
            return term.end()
        context = ControllerContext()
        cluster = None if self._cluster is None else ClusterTerm(self._cluster, term, context)
        self._cluster_term = cluster
        active = ActiveController(
            term,
            context=context,
            store=self._store,
            brokers=cluster or self._brokers,
            defaults=self._defaults,
            random=self._random,
            fair_queue=self._queue,
            report=self._report,
        )
        self._active = active
        if cluster is not None:
            cluster.serve_reassignments(TopicAccess(names=active.names, take_over=active.take_over))
        try:
            topics = await active.load()
        except Exception:
            if not term.is_over:
                raise
        else:
            if self._loaded.done:
                self.on_elected(topics)
            else:
                self._loaded.succeed(topics)
            if cluster is not None:
                cluster.begin()
            active.deletion.begin()
        await term.over()
        if cluster is not None:
            cluster.end()
        self._active = self._cluster_term = None

    def _failed(self, error: Exception) -> None:
        if self._is_stopped:
            # The store was closed.
            return
        if self._loaded.done:
            raise error
        self._loaded.fail(error)

    def _end_term(self) -> None:
        if self._active is not None:
            self._active.term.end()

    def stop(self) -> None:
        """Stop being the controller, and do not campaign again; called before the store closes."""
        self._is_stopped = True
        self._end_term()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller and has loaded all topics."""
        active = self._active
        if active is None or not active.is_loaded or active.term.is_over:
            return False
        # Rule C3: a process that was paused may handle requests before it learns that it was
        # replaced.
        return self._cluster is None or self._cluster.is_leased()

    def check_active(self) -> None:
        """Raise NotController unless this broker is the controller."""
        self._require_active()

    @property
    def cluster(self) -> ClusterTerm:
        """What leads the brokers of a cluster. Raises NotController."""
        self._require_active()
        assert self._cluster_term is not None, "a single broker has no cluster to lead"
        return self._cluster_term

    def _require_active(self) -> ActiveController:
        active = self._active
        if active is None or not self.is_active:
            raise not_controller()
        return active

    @property
    def partition_counts(self) -> PartitionCounts:
        """What monitoring needs to know about the partitions; zeros unless `is_active`."""
        return self._active.partition_counts if self.is_active and self._active else NO_PARTITIONS

    # -- changes by other brokers and programs ------------------------------------------------

    def _config_changed(self, key: Key, value: Mapping[str, str] | None, _version: int) -> None:
        # Settings that cannot be read look missing; the topic keeps those that it has.
        if self._active is not None and self._store.problem(key) is None:
            self._active.config_changed(str(key[2]), value or {})
            self._settings_changed()

    def _settings_changed(self, *_: object) -> None:
        if self._cluster_term is not None:
            self._cluster_term.settings_changed()

    def _brokers_changed(self, *_: object) -> None:
        if self._cluster_term is not None:
            self._cluster_term.brokers_changed()

    def _reassignment_requested(self, *_: object) -> None:
        if self._cluster_term is not None:
            self._cluster_term.reassignment_requested()

    def _log_dir_failed(self, _key: Key, value: int | None, _version: int) -> None:
        if value is not None and self._cluster_term is not None:
            self._cluster_term.log_dir_failed()

    def _deletion_marked(self, key: Key, value: bool | None, _version: int) -> None:
        if value is not None and self._active is not None:
            self._active.deletion.marked(str(key[1]))

    # -- operations ---------------------------------------------------------------------------

    def plan(self, new: NewTopic) -> TopicPlan:
        """Return the plan for a new topic. Raises the KafkaError that the client receives."""
        return self._require_active().plan(new)

    def check_total(self, requested: Sequence[NewTopic]) -> None:
        """Raise PolicyViolation if one request would create too many partitions."""
        check_total(requested, self._defaults())

    def create_topic(self, new: NewTopic) -> Later[TopicState]:
        """Create a topic; completes when it is usable. Fails with the KafkaError for the client."""
        return self._run(lambda active: active.create_topic(new))

    def plan_partitions(self, requested: NewPartitions) -> Assignments:
        """Return the partitions to add. Raises the KafkaError that the client receives."""
        return self._require_active().plan_partitions(requested)

    def create_partitions(self, requested: NewPartitions) -> Later[TopicState]:
        """Add partitions to a topic; completes when they are usable.

        If this fails with the KafkaError for the client, the topic is unchanged, unless only some
        of the new partitions could be written. The next expansion or term then writes the others.
        """
        return self._run(lambda active: active.create_partitions(requested))

    def delete_topic(self, name: str, topic_id: Uuid) -> Later[None]:
        """Delete the topic if it still has this id; completes when its logs are deleted.

        Fails with UnknownTopicOrPartition, or with KafkaStorageError if the write fails.
        """
        return self._run(lambda active: active.delete_topic(name, topic_id))

    def run_exclusively(self, name: str, operation: Callable[[], Later[T]]) -> Later[T]:
        """Run `operation` while no other operation on the topic with this name is in progress."""
        return self._run(lambda active: active.run_exclusively(name, operation))

    def _run(
        self, operation: Callable[[ActiveController], Coroutine[Later[Any], Any, T]]
    ) -> Later[T]:
        try:
            active = self._require_active()
        except NotController as error:
            return failed(error)
        # A client that disconnects must not stop an operation between two writes.
        return shielded(spawn(operation(active)))


def _ignore(_: object) -> None:
    """Do nothing."""
