"""The fence and the queue for LeaderAndIsr, StopReplica and UpdateMetadata.

By rule C10, a request of an earlier controller, or for an earlier registration of this broker, is
rejected, and requests take effect in the order of their arrival: each starts when the previous one
has been applied completely. A request is applied even if its connection is lost, because the
controller may have sent the next one on another connection.

Called on the reactor thread by the handlers in apis/. Source: Kafka 3.9
KafkaApis.isBrokerEpochStale, ReplicaManager.replicaStateChangeLock; KIP-380.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from plog.errors import StaleBrokerEpoch, StaleControllerEpoch
from plogd.concurrency import OneAtATime
from plogd.ports import Later

T = TypeVar("T")

UNKNOWN_EPOCH: Final = -1
"""The broker epoch in requests of old versions, which do not contain it."""


class ControlRequests:
    """The requests of controllers to this broker, in order of arrival.

    Args:
        broker_epoch: returns the epoch of this broker's registration, or -1 without one.
    """

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self._broker_epoch = broker_epoch
        self._queue = OneAtATime()
        self.controller_epoch = 0
        """The largest controller epoch of any request, as Kafka's KafkaController.InitialEpoch."""

    def run(
        self,
        operation: Callable[[], Coroutine[Later[Any], Any, T]],
        *,
        controller_epoch: int,
        broker_epoch: int,
    ) -> Later[T]:
        """Run `operation` after all earlier requests; return its result.

        Fails with StaleControllerEpoch, StaleBrokerEpoch.
        """

        async def fenced() -> T:
            # At its turn, because an earlier request may be from a newer controller.
            self._check(controller_epoch, broker_epoch)
            self.controller_epoch = controller_epoch
            return await operation()

        return self._queue.run(fenced)

    def _check(self, controller_epoch: int, broker_epoch: int) -> None:
        own_epoch = self._broker_epoch()
        if own_epoch < 0:
            raise StaleBrokerEpoch("this broker is not registered in the cluster")
        # Kafka accepts a newer epoch, because its broker may learn the epoch late. Here, the broker
        # accepts requests only when it knows its epoch.
        if broker_epoch not in (UNKNOWN_EPOCH, own_epoch):
            raise StaleBrokerEpoch(f"the broker epoch is {own_epoch}, not {broker_epoch}")
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(
                f"the controller epoch is {self.controller_epoch}, not {controller_epoch}"
            )
