"""Fetch a group's committed offsets; offset_commits.py commits offsets.

Source: Kafka 4.3 ConsumerCoordinator.OffsetFetchResponseHandler; KIP-447, KIP-709.
"""

from __future__ import annotations

from collections.abc import Collection

from plog.client.errors import error_about
from plog.client.group.coordinator_connection import CoordinatorConnection
from plog.client.group.offset_messages import fetch_request, fetch_results
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Network
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    ErrorCode,
    GroupAuthorizationFailed,
    KafkaError,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from plog.types import TopicPartition
from plog.wire.messages.offset_fetch import OffsetFetchResponse


class CommittedOffsets:
    """The requests that fetch a group's committed offsets from its coordinator."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        link: CoordinatorConnection,
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._link = link

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, or None.

        Raises GroupAuthorizationFailed, TopicAuthorizationFailed and UnknownTopicOrPartition
        immediately. Raises RequestTimedOut and other retriable errors after `timeout_s` (default
        ``default.api.timeout.ms``).
        """
        if not partitions:
            return {}
        limit_s = self._settings.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        backoff = self._cluster.backoff(self._cluster.deadline(limit_s))
        while True:
            try:
                # Set `require_stable` regardless of isolation.level: the consumer must wait for the
                # outcome of pending transactions that commit offsets (KIP-447).
                answer = await self._link.ask(
                    lambda connection: fetch_request(
                        self._link.group_id, partitions, connection, require_stable=True
                    ),
                    OffsetFetchResponse,
                    deadline=backoff.deadline,
                )
                return self._offsets(answer, partitions)
            except KafkaError as error:
                self._link.moved(error)
                # UnknownTopicOrPartition is usually retriable. Here, it means that the topic was
                # deleted, so a retry does not help.
                if not error.retriable or isinstance(error, UnknownTopicOrPartition):
                    raise
                await backoff.wait_or_raise(error)

    def _offsets(
        self, answer: OffsetFetchResponse, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        group_id = self._link.group_id
        code, results = fetch_results(answer, group_id)
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise GroupAuthorizationFailed(
                f"cannot fetch offsets for group {group_id}: not authorized; add an ACL that"
                " allows DESCRIBE on the group"
            )
        if code:
            raise error_about(code, f"group {group_id}: committed offsets")
        offsets: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        for partition, (partition_code, offset) in results.items():
            if partition_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise UnstableOffsetCommit(
                    f"group {group_id}: a pending transaction includes an offset commit for"
                    f" {partition}"
                )
            if partition_code:
                raise error_about(
                    partition_code, f"group {group_id}: the committed offset for {partition}"
                )
            # Ignore partitions that the caller has not requested.
            if partition in offsets:
                offsets[partition] = offset
        return offsets
