"""Actors inside the broker's machine, which use the interface of `Log` that clients cannot use.

Other parts of the broker will call this interface: a transaction coordinator, and a follower that
fetches from another broker. The actors call it as these parts will: on the reactor's thread, in a
turn. `Inside` calls a function in the process that is running, and returns its outcome; the process
may end before that. transaction_writer.py and follower.py describe the actors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from plog.errors import KafkaStorageError
from plogd.ports import Later
from plogd.replica.partition import Partition

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

T = TypeVar("T")
_LONGEST_SLEEP_MS = 50.0
_LONGEST_PAUSE_MS = 40.0


class LifeEnded(Exception):
    """The process has ended, or the log is offline, so that the outcome of a call is unknown."""


class CallFailed(Exception):
    """The call failed for a reason that a fault explains."""


class Inside:
    """Calls one log in the process that is running when the object is created."""

    def __init__(self, world: World, process: Process, partition: Partition) -> None:
        self.life_number = process.number
        self.log = partition.log
        self.leader_epoch = partition.leader_epoch
        self._world = world
        self._process = process

    @property
    def is_usable(self) -> bool:
        """Whether the process is running, and the log is online."""
        is_running = self._world.service.process is self._process and self._process.is_serving
        return is_running and not (self.log.offline or self.log.closed)

    async def call(self, function: Callable[[], T | Later[T]]) -> T:
        """Return the outcome of `function`. Raises LifeEnded or CallFailed."""
        outcomes: list[T] = []
        errors: list[Exception] = []

        def run() -> None:
            # In the broker's timers, so that a crash ends the broker, and not the actor.
            with self._process.turn:
                try:
                    result = function()
                except Exception as error:
                    errors.append(error)
                    return
            if isinstance(result, Later):
                result.then(outcomes.append, errors.append)
            else:
                outcomes.append(cast(T, result))

        self._process.timers.call_later(0, run)
        await self.wait_until(lambda: bool(outcomes or errors))
        if errors:
            raise self._explained(errors[0])
        return outcomes[0]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true. Raises LifeEnded."""
        sleep_ms = 0.5
        while not condition():
            if not self.is_usable:
                raise LifeEnded
            await self._world.sleep(sleep_ms)
            sleep_ms = min(2 * sleep_ms, _LONGEST_SLEEP_MS)

    def _explained(self, error: Exception) -> Exception:
        """Return CallFailed for an error that a fault may have caused, and others unchanged."""
        is_injected = self._world.exceptions.faults.caused(error)
        if is_injected or isinstance(error, (KafkaStorageError, OSError)):
            return CallFailed(str(error))
        return error


async def inside(world: World, topic: str, chance: random.Random) -> Inside | None:
    """Return access to partition 0 of `topic` after a random time; None if it has no log then."""
    await world.sleep(chance.uniform(1, _LONGEST_PAUSE_MS))
    process = world.service.process
    if process is None or not process.is_serving:
        return None
    for partition in process.broker.replica_manager.partitions:
        if partition.topic_partition == (topic, 0) and not partition.log.offline:
            return Inside(world, process, partition)
    return None
