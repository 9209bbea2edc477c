"""A transaction's requests to its coordinator and to group coordinators, with unlimited retries.

All of these requests are idempotent: repeating a request that the coordinator has already processed
does no harm. Therefore, a request is retried without a time limit if its response is lost, if the
coordinator has moved, and while the coordinator is still completing the previous transaction
(CONCURRENT_TRANSACTIONS).

Source: Kafka 4.3 TransactionManager's handlers; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from plog.client.errors import error_about
from plog.client.group.group_metadata import GroupMetadata
from plog.client.network.backoff import Backoff
from plog.client.network.cluster import Cluster, CoordinatorKind
from plog.client.network.connection import Connection
from plog.client.network.deadline import Deadline
from plog.client.network.metadata import NO_NODE
from plog.client.network.ports import Network
from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.client.settings import ProducerSettings
from plog.client.transactions.error_classification import Verdict, verdict_of
from plog.client.transactions.messages import (
    add_offsets_request,
    add_partitions_request,
    commit_offsets_request,
    end_request,
    error_of_partitions,
    init_request,
)
from plog.client.transactions.transaction_state import LAST_PRODUCE_VERSION_1, TransactionState
from plog.client.values import OffsetAndMetadata
from plog.errors import ErrorCode, KafkaError, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from plog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from plog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.produce import ProduceRequest
from plog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from plog.wire.schema import ApiMessage, WireError

log = logging.getLogger("plog.client")

R = TypeVar("R", bound=ApiMessage)

_FEATURE = "transaction.version"
_LAST_VERSION_1 = 4
"""The last version of EndTxn and TxnOffsetCommit for version 1 transactions."""
_LAST_ADD_PARTITIONS = 3
"""The last version of AddPartitionsToTxn for clients; later versions are only for brokers."""
_FIRST_WITH_GROUP = 3
"""The first version of TxnOffsetCommit that identifies the group member."""
_FIRST_WITH_EPOCH = 3
"""The first version of InitProducerId in which a producer can request its next epoch."""
# The same value as Kafka's ADD_PARTITIONS_RETRY_BACKOFF_MS. It is short because the previous
# transaction usually completes within moments.
_FIRST_BACKOFF_S = 0.02
"""The first backoff, in seconds."""


class TransactionCoordinator:
    """A producer's transaction requests. Its methods raise permanent errors."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ProducerSettings,
        state: TransactionState,
    ) -> None:
        assert settings.transactional_id is not None
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._state = state
        self._id = settings.transactional_id
        self._is_v2 = False
        self._node_id = NO_NODE
        """The coordinator to which the last request was sent."""

    @property
    def is_v2(self) -> bool:
        """Whether the cluster uses version 2 transactions, according to the coordinator."""
        # Read the features again each time: the cluster may have been upgraded (KIP-584).
        connection = self._cluster.idle_connection(self._node_id)
        if connection is not None:
            self._is_v2 = _has_version_2(connection)
        return self._is_v2

    async def init(self, identity: ProducerIdentity | None = None) -> ProducerIdentity:
        """Return a producer ID, and fence all other producers with the transactional.id.

        With `identity`, the producer's current ID and epoch, return the next epoch of that ID.
        """
        # If the producer has an identity, its cluster supports transactions.
        if identity is None:
            await self._check_served()
        request = init_request(self._id, self._settings.transaction_timeout_ms, identity)

        def error_of(answer: InitProducerIdResponse) -> KafkaError | None:
            return self._error(answer.error_code, "InitProducerId")

        def version_of(connection: Connection) -> int:
            version = connection.version_of(InitProducerIdRequest)
            if identity is not None and version < _FIRST_WITH_EPOCH:
                raise UnsupportedVersion(
                    f"transactional.id={self._id}: cannot recover from the error: the broker at"
                    f" {connection.address} is too old; create a new producer"
                )
            return version

        answer = await self._ask(request, InitProducerIdResponse, error_of, version_of=version_of)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction, before the first records are written to them."""
        request = add_partitions_request(self._id, self._identity, partitions)

        def error_of(answer: AddPartitionsToTxnResponse) -> KafkaError | None:
            return error_of_partitions(answer, f"transactional.id={self._id}: adding")

        await self._ask(
            request, AddPartitionsToTxnResponse, error_of, last_version=_LAST_ADD_PARTITIONS
        )

    async def add_offsets(self, group_id: str) -> None:
        """Add a group's offsets to the transaction, before offsets are committed."""
        request = add_offsets_request(self._id, self._identity, group_id)

        def error_of(answer: AddOffsetsToTxnResponse) -> KafkaError | None:
            return self._error(answer.error_code, f"adding the offsets of group {group_id}")

        await self._ask(request, AddOffsetsToTxnResponse, error_of)

    async def commit_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Send the offsets to commit with the transaction to the group's coordinator."""
        request = commit_offsets_request(self._id, self._identity, group, offsets)

        def error_of(answer: TxnOffsetCommitResponse) -> KafkaError | None:
            about = f"group {group.group_id}, generation {group.generation_id}: the offset of"
            return error_of_partitions(answer, about)

        def version_of(connection: Connection) -> int:
            version = connection.version_of(TxnOffsetCommitRequest)
            # Old versions do not contain the member's generation, so a fenced consumer could commit
            # (KIP-447).
            if version < _FIRST_WITH_GROUP and group != GroupMetadata(group.group_id):
                raise UnsupportedVersion(
                    f"cannot check the group member: the broker at {connection.address} is older"
                    " than Kafka 2.5; pass the group ID instead of the group metadata"
                )
            return version

        await self._ask(
            request,
            TxnOffsetCommitResponse,
            error_of,
            version_of=version_of,
            last_version=None if self._state.is_v2 else _LAST_VERSION_1,
            group_id=group.group_id,
            while_open=True,
        )

    async def end(self, *, committed: bool) -> ProducerIdentity:
        """Commit or abort the transaction, and return the producer's identity for the next one."""
        identity = self._identity
        request = end_request(self._id, identity, committed=committed)

        def error_of(answer: EndTxnResponse) -> KafkaError | None:
            return self._error(answer.error_code, "committing" if committed else "aborting")

        answer = await self._ask(
            request,
            EndTxnResponse,
            error_of,
            last_version=None if self._state.is_v2 else _LAST_VERSION_1,
        )
        # The response contains the next identity only in version 2.
        if answer.producer_id < 0:
            return identity
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    # -- requests -------------------------------------------------------------------------------

    @property
    def _identity(self) -> ProducerIdentity:
        assert self._state.identity is not None, "a transaction has a producer id"
        return self._state.identity

    def _error(self, code: int, about: str) -> KafkaError | None:
        return error_about(code, f"transactional.id={self._id}: {about}") if code else None

    async def _check_served(self) -> None:
        """Raise UnsupportedVersion if the brokers do not support transactions."""
        # Some brokers support FindCoordinator for transactions, but not the later requests.
        connection = await self._cluster.any_connection()
        if not connection.speaks(EndTxnRequest):
            raise UnsupportedVersion(
                f"transactional.id={self._id}: the broker at {connection.address} does not support"
                " transactions (it does not serve EndTxn); remove transactional.id: the producer is"
                " idempotent without it"
            )

    async def _ask(
        self,
        request: ApiMessage,
        response: type[R],
        error_of: Callable[[R], KafkaError | None],
        *,
        version_of: Callable[[Connection], int] | None = None,
        last_version: int | None = None,
        group_id: str | None = None,
        while_open: bool = False,
    ) -> R:
        """Return the first response without an error; retry without a time limit.

        The request is sent to the coordinator of `group_id`, by default to the transaction's
        coordinator. The first permanent error is raised. With `while_open`, any error is raised
        once the transaction no longer accepts additions.
        """
        kind = CoordinatorKind.TRANSACTION if group_id is None else CoordinatorKind.GROUP
        key = self._id if group_id is None else group_id
        # There is no deadline: the caller's timeout ends only its wait, not this request
        # (transaction_manager.py).
        backoff = self._backoff()
        while True:
            try:
                node_id = await self._cluster.coordinator(key, kind)
                # `is_v2` reads the features of the transaction's last coordinator.
                if group_id is None:
                    self._node_id = node_id
                connection = await self._cluster.connection(node_id)
                version = version_of(connection) if version_of else connection.version_of(request)
                if last_version is not None:
                    version = min(version, last_version)
                answer = await connection.ask(request, response, version=version)
                error: Exception | None = error_of(answer)
                if error is None:
                    return answer
            except (KafkaError, WireError) as failure:
                error = failure
            verdict = verdict_of(error)
            # After a lost connection, the coordinator may also have moved.
            if verdict is Verdict.FIND_COORDINATOR or _is_connection_error(error):
                self._cluster.forget_coordinator(key, kind)
            elif verdict is not Verdict.RETRY:
                raise error
            # An abort waits for this request, so a retry would only delay the abort.
            if while_open and not self._state.may_retry:
                raise error
            log.debug("retrying a transaction request: %s", error)
            await backoff.wait()

    def _backoff(self) -> Backoff:
        return Backoff(
            self._network,
            first_s=_FIRST_BACKOFF_S,
            longest_s=self._settings.retry_backoff_max_ms / 1000,
            deadline=Deadline(self._network, math.inf),
        )


def _is_connection_error(error: Exception) -> bool:
    """Return whether the coordinator was unreachable or did not respond."""
    return isinstance(error, KafkaError) and error.code in (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )


def _has_version_2(connection: Connection) -> bool:
    """Return whether the cluster uses, and the broker supports, version 2 transactions."""
    level = max(
        (
            feature.max_version_level
            for feature in connection.api_versions.finalized_features
            if feature.name == _FEATURE
        ),
        default=0,
    )
    return (
        level >= 2
        # All three requests must follow the rules of version 2, or none of them.
        and connection.version_of(ProduceRequest) > LAST_PRODUCE_VERSION_1
        and connection.version_of(EndTxnRequest) > _LAST_VERSION_1
        and connection.version_of(TxnOffsetCommitRequest) > _LAST_VERSION_1
    )
