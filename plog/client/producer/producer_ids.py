"""The producer id of an idempotent producer: asked for when it is needed, and anew when it must be.

Any broker gives one out (InitProducerId without a transactional id). What it is used for, and when
it cannot be used any more, is sequence_numbers.py's to say.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from plog.client.errors import ClosedError
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Network, Task
from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.errors import KafkaError, error_from_code
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.schema import WireError

log = logging.getLogger("plog.client")

_NO_TIMEOUT = 0x7FFFFFFF


class ProducerIds:
    """See the module's text. Calls `on_id` when there is one, `on_failure` when none can be had."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        on_failure: Callable[[Exception], None],
        on_id: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._on_failure = on_failure
        self._on_id = on_id
        self._identity: ProducerIdentity | None = None
        self._task: Task | None = None

    @property
    def identity(self) -> ProducerIdentity:
        """The one there is; ask `fit` first."""
        assert self._identity is not None
        return self._identity

    def fit(self, past_producer_id: int) -> bool:
        """Whether there is an id that is not `past_producer_id`; asks for one if there is not."""
        if self._identity is not None and self._identity.producer_id != past_producer_id:
            return True
        if self._task is None or self._task.done:  # Other partitions go on with the one there is.
            self._task = self._network.spawn(self._ask(), "asking for a producer id")
        return False

    def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while True:
            try:
                response = await self._cluster.ask_any(request, InitProducerIdResponse)
                if response.error_code:
                    raise error_from_code(
                        response.error_code, "no producer id for an idempotent producer"
                    )
                break
            except ClosedError:
                return
            except (KafkaError, WireError) as error:
                if not isinstance(error, WireError) and not error.retriable:
                    self._on_failure(error)
                    return
                log.warning("no producer id: %s", error)
            await backoff.wait()
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._on_id()
