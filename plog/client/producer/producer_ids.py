"""The producer ID of an idempotent producer, requested when it is first needed or must be replaced.

Any broker can assign a producer ID (InitProducerId without a transactional ID). sequence_numbers.py
describes how the ID is used and when it must be replaced.
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

# Without a transactional.id, the timeout has no meaning. Kafka's producer sends the same value.
_NO_TIMEOUT = 0x7FFFFFFF


class ProducerIds:
    """The current producer ID, and the task that requests a new one.

    A successful request calls `on_id`; a permanent error calls `on_failure`.
    """

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
        """The current producer ID and epoch; call `fit` first."""
        assert self._identity is not None
        return self._identity

    def fit(self, past_producer_id: int) -> bool:
        """Return whether an ID other than `past_producer_id` is available; if not, request it."""
        if self._identity is not None and self._identity.producer_id != past_producer_id:
            return True
        # During the request, other partitions keep using the old ID.
        if self._task is None or self._task.done:
            self._task = self._network.spawn(self._ask(), "requesting a producer ID")
        return False

    def stop(self) -> None:
        """Cancel a request in progress."""
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while True:
            # KIP-98: without a transactional ID, any broker can assign a producer ID.
            try:
                response = await self._cluster.ask_any(request, InitProducerIdResponse)
                if response.error_code:
                    raise error_from_code(response.error_code, "cannot obtain a producer ID")
                break
            except ClosedError:
                return
            except (KafkaError, WireError) as error:
                # Retry after a malformed response, as after a lost connection.
                if not isinstance(error, WireError) and not error.retriable:
                    self._on_failure(error)
                    return
                log.warning("cannot obtain a producer ID, retrying: %s", error)
            await backoff.wait()
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._on_id()
