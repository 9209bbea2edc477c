"""Reassignments that other programs request in ``/admin/reassign_partitions``.

Tools of Kafka before version 2.4 write this znode, and Kafka 3.9 with ZooKeeper still follows it.
The controller begins the reassignments like those of AlterPartitionReassignments, and then removes
the znode. Kafka removes it when the last partition has moved.

Source: Kafka 3.9 KafkaController.processZkPartitionReassignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plog.errors import KafkaError, NotController
from plog.types import TopicPartition
from plogd.controller.cluster.partition_reassignments import PartitionReassignments
from plogd.controller.term import Term
from plogd.metadata.store import ABSENT, Change, Key, MetadataStore
from plogd.ports import Report, spawn

KEY: Final[Key] = ("reassign_partitions",)
"""The key of the znode in the ZooKeeper store; its value has the target replicas by partition."""


class ReassignmentZnode:
    """Begins the reassignments in the znode, in one term."""

    def __init__(
        self,
        term: Term,
        store: MetadataStore,
        reassignments: PartitionReassignments,
        report: Report,
    ) -> None:
        self._term = term
        self._store = store
        self._reassignments = reassignments
        self._report = report
        self._is_due = self._is_running = False

    def check(self) -> None:
        """Begin the reassignments in the znode in the background, if it exists."""
        self._is_due = True
        if not self._is_running:
            self._is_running = True
            spawn(self._run()).then(_ignore, self._failed)

    async def _run(self) -> None:
        try:
            while self._is_due and not self._term.is_over:
                self._is_due = False
                await self._begin_all()
        finally:
            self._is_running = False

    def _failed(self, error: Exception) -> None:
        if isinstance(error, NotController):
            return  # The next controller finds the znode.
        if not isinstance(error, KafkaError):
            raise error
        self._report(
            "cannot remove /admin/reassign_partitions: {error}", error=error.message, level="error"
        )

    async def _begin_all(self) -> None:
        value, version = self._store.get(KEY)
        if version == ABSENT:
            return
        wanted: dict[str, dict[int, Sequence[int]]] = {}
        for (name, number), replicas in value.items():
            wanted.setdefault(name, {})[number] = replicas
        for name, partitions in wanted.items():
            await self._begin(name, partitions)
        # A conflict means that a program has changed the znode, which causes another check.
        await self._term.write([Change(key=KEY, value=None, expected=version)])

    async def _begin(self, name: str, partitions: dict[int, Sequence[int]]) -> None:
        problems: Mapping[int, KafkaError]
        try:
            problems = await self._reassignments.alter(name, partitions)
        except NotController:
            raise
        except KafkaError as error:
            problems = dict.fromkeys(partitions, error)
        for number, problem in problems.items():
            self._report(
                "cannot reassign {topic_partition} as /admin/reassign_partitions requests: {error}",
                topic_partition=TopicPartition(name, number),
                error=problem.message,
                level="warn",
            )


def _ignore(_: None) -> None:
    """Do nothing: each partition has its own outcome."""
