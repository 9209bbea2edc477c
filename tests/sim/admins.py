"""Scripted admins: one creates the permanent topics, the others create, delete and recreate topics.

Each topic name belongs to one admin, so that the expected state is always known. If a connection
breaks and the outcome of a request is unknown, the next Metadata response decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plog.errors import ErrorCode
from plog.types import Uuid
from plog.wire.api_keys import ApiKey
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.sim.client import PASSING_ERRORS, Client, check_code
from tests.sim.network import ConnectionLost

if TYPE_CHECKING:
    from tests.sim.world import World

_FIRST_ID_IN_CREATE = 7
_FIRST_ID_IN_DELETE = 6
_TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The name and settings of a topic that an admin creates."""

    name: str
    partitions: int
    settings: Mapping[str, str]
    is_written_by_clients: bool = True
    is_read_by_clients: bool = True
    replication_factor: int = 1

    @property
    def keeps_everything(self) -> bool:
        """Whether retention never deletes any of its records."""
        return self.settings.get("retention.ms") == "-1" and "retention.bytes" not in self.settings

    @property
    def is_compacted(self) -> bool:
        """Whether compaction removes all but the last record of each key."""
        return "compact" in self.settings.get("cleanup.policy", "")

    @property
    def delete_retention_ms(self) -> int:
        """For how long a compacted topic keeps tombstones."""
        return int(self.settings["delete.retention.ms"])

    @property
    def is_durable(self) -> bool:
        """Whether acknowledged records survive a power loss."""
        return "flush.messages" not in self.settings


class Admin(Client):
    """A client that creates and deletes topics and checks the responses."""

    async def create(self, plan: TopicPlan) -> None:
        """Create a topic; after a lost response, TOPIC_ALREADY_EXISTS is a valid outcome."""
        self.go_to_controller()
        await self.connected()
        version = self.version(ApiKey.CREATE_TOPICS, 2)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=plan.name,
                    num_partitions=plan.partitions,
                    replication_factor=plan.replication_factor,
                    configs=[
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in plan.settings.items()
                    ],
                )
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        answer = await self.ask(request, version, CreateTopicsResponse)
        result = answer.topics[0]
        check_code(
            result.error_code,
            f"CreateTopics {plan.name}: {result.error_message}",
            (*PASSING_ERRORS, *self.world.cluster_errors, ErrorCode.TOPIC_ALREADY_EXISTS),
        )
        if not result.error_code and version >= _FIRST_ID_IN_CREATE:
            self.world.topics.created(plan.name, result.topic_id, plan.partitions)

    async def delete(self, name: str, topic_id: Uuid) -> None:
        """Delete a topic by id or by name."""
        self.go_to_controller()
        await self.connected()
        version = self.version(ApiKey.DELETE_TOPICS, 1)
        by_id = version >= _FIRST_ID_IN_DELETE and self.chance.random() < 0.8
        request = DeleteTopicsRequest(
            topic_names=[name] if version < _FIRST_ID_IN_DELETE else [],
            timeout_ms=_TIMEOUT_MS,
        )
        if by_id:
            request.topics = [DeleteTopicState(name=None, topic_id=topic_id)]
        elif version >= _FIRST_ID_IN_DELETE:
            request.topics = [DeleteTopicState(name=name)]
        self.world.topics.deleting(name=name, topic_id=topic_id if by_id else None)
        answer = await self.ask(request, version, DeleteTopicsResponse)
        result = answer.responses[0]
        check_code(
            result.error_code, f"DeleteTopics {name}: {result.error_message}", PASSING_ERRORS
        )
        if not result.error_code:
            self.world.topics.deleted(name=name, topic_id=topic_id)


class Founder(Admin):
    """The admin that creates the permanent topics; finished when Metadata lists all of them."""

    def __init__(self, world: World, name: str, plans: Sequence[TopicPlan]) -> None:
        super().__init__(world, name)
        self._plans = plans

    async def run(self) -> None:
        missing = list(self._plans)
        while missing and self.world.working:
            await self.world.pause(self.chance)
            try:
                await self.create(missing[0])
                sights = await self.topics()
            except ConnectionLost:
                continue
            missing = [plan for plan in missing if plan.name not in sights]


class Remaker(Admin):
    """An admin that repeatedly creates its topics and deletes them."""

    def __init__(self, world: World, name: str, topics: Sequence[str]) -> None:
        super().__init__(world, name)
        self._topics = topics

    async def run(self) -> None:
        while self.world.working:
            await self.world.sleep(self.chance.uniform(10, 2_000))
            await self.world.pause(self.chance)
            name = self.chance.choice(self._topics)
            try:
                sight = (await self.topics()).get(name)
                if sight is not None:
                    await self.delete(name, sight.topic_id)
                elif self.chance.random() < 0.2:
                    await self.touch_topic(name)
                else:
                    plan = TopicPlan(
                        name,
                        self.chance.randint(1, 3),
                        {},
                        replication_factor=self.world.usual_replicas,
                    )
                    await self.create(plan)
            except ConnectionLost:
                continue
