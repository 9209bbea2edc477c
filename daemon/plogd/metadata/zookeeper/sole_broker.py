"""The store of a broker that is alone in its cluster, which leads every partition that it can.

Brokers do not replicate partitions to each other yet. Until they do, a broker that finds another
broker in its cluster does not start, and this module does what the controller will do for several
brokers: when the broker starts, it becomes the leader of all partitions whose records it has, and
their leader epochs rise (rule R6).

A topic is offline if this broker lacks the newest records of one of its partitions. The controller
does not get these topics. It also does not serve topics with damaged znodes.

Source: Kafka 3.9 ZkPartitionStateMachine, PartitionLeaderElectionAlgorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plog.error_base import PlogError
from plog.types import ZERO_UUID, Uuid
from plogd.concurrency import within
from plogd.metadata.store import ABSENT, Change, Key, PartitionValue, TopicValue, Written
from plogd.metadata.zookeeper.paths import topic_of_path
from plogd.metadata.zookeeper.store import ZooKeeperStore
from plogd.ports import Later, spawn


class NotAlone(PlogError):
    """Another broker belongs to the cluster; the message names it."""


class SoleBrokerStore(ZooKeeperStore):
    """A `ZooKeeperStore` whose broker leads all partitions once `campaign` has completed."""

    _leads = False
    _unled: Mapping[str, str] = {}
    """The topics that this broker cannot lead, with the reason."""

    def campaign(self) -> Later[int]:
        """Become the controller; the first time, also the leader of all partitions.

        Fails with NotAlone if another broker stays in the cluster.
        """
        return super().campaign() if self._leads else spawn(self._first_campaign())

    async def _first_campaign(self) -> int:
        # The session of a broker that was killed can last for this time.
        wait_ms = 2.0 * self._session.session_timeout_ms
        term = await within(super().campaign(), wait_ms, self._timers, self._other_controller)
        await within(self._alone(), wait_ms, self._timers, self._other_broker)
        while not await self._lead_all(term):
            # Another program has changed a partition, or the connection was lost.
            term = await super().campaign()
        self._leads = True
        return term

    def _other_controller(self) -> NotAlone:
        return self._not_alone(f"broker {self.controller_id} is its controller")

    def _other_broker(self) -> NotAlone:
        numbers = ", ".join(map(str, self._others()))
        return self._not_alone(f"broker {numbers} is registered")

    def _not_alone(self, why: str) -> NotAlone:
        return NotAlone(
            f"cannot join the cluster in ZooKeeper: {why}, but plog does not support several"
            " brokers yet; stop the other broker, or set another chroot in zookeeper.connect"
        )

    def _others(self) -> list[int]:
        return sorted(int(key[1]) for key in self.load(("broker",)) if key[1] != self._broker_id)

    def _alone(self) -> Later[None]:
        """Wait until no other broker is registered."""
        alone: Later[None] = Later()

        def check(*_: object) -> None:
            if not self._others() and not alone.done:
                alone.succeed(None)

        self.watch(("broker",), check)
        check()
        return alone

    # -- leading ------------------------------------------------------------------------------

    async def _lead_all(self, term: int) -> bool:
        """Write the first leader epoch of this run to all partitions; False to try again."""
        changes: list[Change] = []
        unled: dict[str, str] = {}
        states = self.load(("partition",))
        for key, (topic, _) in super().load(("topic",)).items():
            leaderships = self._leaderships(str(key[1]), topic, states)
            if isinstance(leaderships, str):
                unled[str(key[1])] = leaderships
            else:
                changes += leaderships
        outcomes = await self.write(changes, term)
        if not all(isinstance(outcome, Written) for outcome in outcomes):
            return False
        self._unled = unled
        for name, why in unled.items():
            self._report("topic {topic} is offline: {why}", topic=name, why=why, level="error")
        return True

    def _leaderships(
        self, name: str, topic: TopicValue, states: Mapping[Key, tuple[PartitionValue, int]]
    ) -> list[Change] | str:
        """Return the changes that make this broker the leader, or why it cannot be."""
        changes = []
        for number in topic.assignments:
            key: Key = ("partition", name, number)
            # The controller reports damaged states, and writes those that are missing.
            if key not in states:
                continue
            state, version = states[key]
            if self._broker_id not in state.isr:
                return (
                    f"broker {self._broker_id} does not have all records of partition {number}, and"
                    f" {_brokers_text(state.isr)} cannot be reached"
                )
            value = replace(
                state,
                leader=self._broker_id,
                leader_epoch=state.leader_epoch + 1,
                isr=(self._broker_id,),
                partition_epoch=state.partition_epoch + 1,
            )
            changes.append(Change(key=key, value=value, expected=version))
        return changes

    # -- topics that are offline --------------------------------------------------------------

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all keys that begin with `prefix`, except topics that this broker cannot lead."""
        found = super().load(prefix)
        if prefix[0] != "topic":
            return found
        return {key: entry for key, entry in found.items() if key[1] not in self._unled}

    @property
    def offline_topics(self) -> dict[str, Uuid]:
        """The topics that are not served, with their ids, or ZERO_UUID."""
        damaged = {name for path in self.damaged if (name := topic_of_path(path)) is not None}
        offline = {}
        for name in damaged | self._unled.keys():
            topic, version = self.get(("topic", name))
            offline[name] = ZERO_UUID if version == ABSENT else topic.topic_id
        return offline


def _brokers_text(ids: tuple[int, ...]) -> str:
    return f"broker {', '.join(map(str, ids))}" if ids else "the broker that had them"
