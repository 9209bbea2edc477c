"""The table of supported APIs: each row contains an API's handler and its range of versions.

A new API needs a row here and a handler in the file of its API family. The response to ApiVersions
is built from this table, and depends on the metadata store and on the listener. Source of the
version ranges: Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from plog.wire.api_keys import ApiKey
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.acls import DescribeAclsResponse
from plog.wire.messages.alter_partition import AlterPartitionResponse
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.messages.controlled_shutdown import ControlledShutdownResponse
from plog.wire.messages.heartbeat import HeartbeatResponse
from plog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from plog.wire.messages.leave_group import LeaveGroupResponse
from plog.wire.messages.list_config_resources import ListConfigResourcesResponse
from plog.wire.messages.list_groups import ListGroupsResponse
from plog.wire.messages.offset_delete import OffsetDeleteResponse
from plog.wire.messages.stop_replica import StopReplicaResponse
from plog.wire.messages.sync_group import SyncGroupResponse
from plog.wire.messages.update_metadata import UpdateMetadataResponse
from plog.wire.messages.user_scram_credentials import DescribeUserScramCredentialsResponse
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage
from plogd.apis.acls import (
    handle_create_acls,
    handle_delete_acls,
    handle_describe_acls,
    refuse_create_acls,
    refuse_delete_acls,
)
from plogd.apis.alter_configs import handle_alter_configs, refuse_alter_configs
from plogd.apis.alter_partition import handle_alter_partition
from plogd.apis.api_versions import Advertised, handle_api_versions, refuse_api_versions
from plogd.apis.client_quotas import (
    handle_alter_client_quotas,
    handle_describe_client_quotas,
    refuse_alter_client_quotas,
    refuse_describe_client_quotas,
)
from plogd.apis.cluster_requests import check_is_broker
from plogd.apis.controlled_shutdown import handle_controlled_shutdown
from plogd.apis.create_partitions import handle_create_partitions, refuse_create_partitions
from plogd.apis.create_topics import handle_create_topics, refuse_create_topics
from plogd.apis.delete_groups import handle_delete_groups, refuse_delete_groups
from plogd.apis.delete_records import handle_delete_records, refuse_delete_records
from plogd.apis.delete_topics import handle_delete_topics, refuse_delete_topics
from plogd.apis.describe_cluster import handle_describe_cluster, refuse_describe_cluster
from plogd.apis.describe_configs import handle_describe_configs, refuse_describe_configs
from plogd.apis.describe_groups import handle_describe_groups, refuse_describe_groups
from plogd.apis.describe_log_dirs import handle_describe_log_dirs, refuse_describe_log_dirs
from plogd.apis.describe_producers import handle_describe_producers, refuse_describe_producers
from plogd.apis.describe_quorum import handle_describe_quorum, refuse_describe_quorum
from plogd.apis.describe_topic_partitions import (
    handle_describe_topic_partitions,
    refuse_describe_topic_partitions,
)
from plogd.apis.elect_leaders import handle_elect_leaders, refuse_elect_leaders
from plogd.apis.encoded_response import SharedResponse
from plogd.apis.error_responses import Refusal, refuse_at_top_level
from plogd.apis.fetch import handle_fetch, refuse_fetch
from plogd.apis.find_coordinator import handle_find_coordinator, refuse_find_coordinator
from plogd.apis.heartbeat import handle_heartbeat
from plogd.apis.incremental_alter_configs import (
    handle_incremental_alter_configs,
    refuse_incremental_alter_configs,
)
from plogd.apis.init_producer_id import handle_init_producer_id, refuse_init_producer_id
from plogd.apis.join_group import handle_join_group, refuse_join_group
from plogd.apis.leader_and_isr import handle_leader_and_isr
from plogd.apis.leave_group import handle_leave_group
from plogd.apis.list_config_resources import handle_list_config_resources
from plogd.apis.list_groups import handle_list_groups
from plogd.apis.list_offsets import handle_list_offsets, refuse_list_offsets
from plogd.apis.metadata import handle_metadata, refuse_metadata
from plogd.apis.offset_commit import handle_offset_commit, refuse_offset_commit
from plogd.apis.offset_delete import handle_offset_delete
from plogd.apis.offset_fetch import handle_offset_fetch, refuse_offset_fetch
from plogd.apis.offset_for_leader_epoch import (
    handle_offset_for_leader_epoch,
    refuse_offset_for_leader_epoch,
)
from plogd.apis.partition_reassignments import (
    handle_alter_partition_reassignments,
    handle_list_partition_reassignments,
    refuse_alter_partition_reassignments,
    refuse_list_partition_reassignments,
)
from plogd.apis.produce import handle_produce, refuse_produce
from plogd.apis.request_context import RequestContext
from plogd.apis.stop_replica import handle_stop_replica
from plogd.apis.sync_group import handle_sync_group
from plogd.apis.update_features import handle_update_features, refuse_update_features
from plogd.apis.update_metadata import handle_update_metadata
from plogd.apis.user_scram_credentials import (
    handle_alter_user_scram_credentials,
    handle_describe_user_scram_credentials,
    refuse_alter_user_scram_credentials,
)
from plogd.broker import Broker
from plogd.ports import Later

Response: TypeAlias = ApiMessage | bytes | list[Part] | SharedResponse
"""The response of a handler; bytes are a complete frame; parts are encoded, but lack the header."""

# Any, because each row has its own request class, which the dispatcher uses to decode the request.
Handler: TypeAlias = Callable[[Any, RequestContext, Broker], Response | Later[Any] | None]
"""Handles a request; returns the response or a Later, or None to send no response.

May raise KafkaError."""


@dataclass(frozen=True, slots=True)
class Row:
    """An API: its inclusive range of supported versions, and the functions that serve it."""

    api_key: ApiKey
    first_version: int
    last_version: int
    handle: Handler
    refuse: Refusal
    advertised_from: int | None = None
    """The first version in ApiVersions responses, if it is lower than `first_version`."""
    only_embedded: bool = False
    """Whether the API requires the embedded metadata store, as Kafka's requires KRaft."""
    only_between_brokers: bool = False
    """Whether only brokers may send the request. On any listener other than the inter-broker
    listener, it is rejected with CLUSTER_AUTHORIZATION_FAILED and not advertised."""

    @property
    def request(self) -> type[ApiMessage]:
        """The class of the API's requests."""
        return API_BY_KEY[self.api_key].request

    @property
    def name(self) -> str:
        """Kafka's name for the API, also used in metrics."""
        return self.request.__name__.removesuffix("Request")

    @property
    def advertised(self) -> Advertised:
        """The range of versions in ApiVersions responses."""
        first = self.first_version if self.advertised_from is None else self.advertised_from
        return Advertised(self.api_key, first, self.last_version)


def _handle_api_versions(
    request: ApiVersionsRequest, context: RequestContext, broker: Broker
) -> ApiVersionsResponse:
    # Not a partial function: the APIs are derived from the table that contains this handler.
    config = broker.config
    is_inter_broker = context.connection.listener_name == config.used_inter_broker_listener_name
    advertised = _advertised(config.has_embedded_store, is_inter_broker)
    return handle_api_versions(request, context, broker, advertised)


HANDLERS: tuple[Row, ...] = (
    # Older librdkafka disables compression if version 0 is not advertised; see produce.py.
    Row(ApiKey.PRODUCE, 3, 13, handle_produce, refuse_produce, advertised_from=0),
    # KIP-896 removed versions 0-3, which return records in formats older than the record batch.
    Row(ApiKey.FETCH, 4, 18, handle_fetch, refuse_fetch),
    # Version 0 returns the base offsets of segments instead of one offset by timestamp (KIP-79).
    Row(ApiKey.LIST_OFFSETS, 1, 11, handle_list_offsets, refuse_list_offsets),
    Row(ApiKey.METADATA, 0, 13, handle_metadata, refuse_metadata),
    # Version 0 of this API and of the next one stores offsets in ZooKeeper. KIP-896 removed it, and
    # also version 1 of OffsetCommit.
    Row(ApiKey.OFFSET_COMMIT, 2, 10, handle_offset_commit, refuse_offset_commit),
    Row(ApiKey.OFFSET_FETCH, 1, 10, handle_offset_fetch, refuse_offset_fetch),
    Row(ApiKey.FIND_COORDINATOR, 0, 6, handle_find_coordinator, refuse_find_coordinator),
    Row(ApiKey.JOIN_GROUP, 0, 9, handle_join_group, refuse_join_group),
    Row(ApiKey.HEARTBEAT, 0, 4, handle_heartbeat, refuse_at_top_level(HeartbeatResponse)),
    Row(ApiKey.LEAVE_GROUP, 0, 5, handle_leave_group, refuse_at_top_level(LeaveGroupResponse)),
    Row(ApiKey.SYNC_GROUP, 0, 5, handle_sync_group, refuse_at_top_level(SyncGroupResponse)),
    Row(ApiKey.DESCRIBE_GROUPS, 0, 6, handle_describe_groups, refuse_describe_groups),
    Row(ApiKey.LIST_GROUPS, 0, 5, handle_list_groups, refuse_at_top_level(ListGroupsResponse)),
    Row(ApiKey.API_VERSIONS, 0, 4, _handle_api_versions, refuse_api_versions),
    Row(ApiKey.CREATE_TOPICS, 2, 7, handle_create_topics, refuse_create_topics),
    Row(ApiKey.DELETE_TOPICS, 1, 6, handle_delete_topics, refuse_delete_topics),
    Row(ApiKey.DELETE_RECORDS, 0, 2, handle_delete_records, refuse_delete_records),
    # Version 6 is still unstable in Kafka 4.3.
    Row(ApiKey.INIT_PRODUCER_ID, 0, 5, handle_init_producer_id, refuse_init_producer_id),
    Row(
        # librdkafka uses only version 2, and does not detect truncation if it is missing.
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        2,
        4,
        handle_offset_for_leader_epoch,
        refuse_offset_for_leader_epoch,
    ),
    Row(
        ApiKey.DESCRIBE_ACLS, 1, 3, handle_describe_acls, refuse_at_top_level(DescribeAclsResponse)
    ),
    Row(ApiKey.CREATE_ACLS, 1, 3, handle_create_acls, refuse_create_acls),
    Row(ApiKey.DELETE_ACLS, 1, 3, handle_delete_acls, refuse_delete_acls),
    Row(ApiKey.DESCRIBE_CONFIGS, 1, 4, handle_describe_configs, refuse_describe_configs),
    Row(ApiKey.ALTER_CONFIGS, 0, 2, handle_alter_configs, refuse_alter_configs),
    # Kafka dropped version 0, but kafka-python 2.3 does not send any other version.
    Row(ApiKey.DESCRIBE_LOG_DIRS, 0, 5, handle_describe_log_dirs, refuse_describe_log_dirs),
    Row(ApiKey.CREATE_PARTITIONS, 0, 3, handle_create_partitions, refuse_create_partitions),
    Row(ApiKey.DELETE_GROUPS, 0, 2, handle_delete_groups, refuse_delete_groups),
    Row(ApiKey.ELECT_LEADERS, 0, 2, handle_elect_leaders, refuse_elect_leaders),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        1,
        handle_incremental_alter_configs,
        refuse_incremental_alter_configs,
    ),
    Row(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        handle_alter_partition_reassignments,
        refuse_alter_partition_reassignments,
    ),
    Row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        0,
        handle_list_partition_reassignments,
        refuse_list_partition_reassignments,
    ),
    Row(
        ApiKey.OFFSET_DELETE, 0, 0, handle_offset_delete, refuse_at_top_level(OffsetDeleteResponse)
    ),
    Row(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        0,
        1,
        handle_describe_client_quotas,
        refuse_describe_client_quotas,
    ),
    Row(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, handle_alter_client_quotas, refuse_alter_client_quotas),
    Row(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        handle_describe_user_scram_credentials,
        refuse_at_top_level(DescribeUserScramCredentialsResponse),
    ),
    Row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        handle_alter_user_scram_credentials,
        refuse_alter_user_scram_credentials,
    ),
    Row(
        ApiKey.DESCRIBE_QUORUM,
        0,
        2,
        handle_describe_quorum,
        refuse_describe_quorum,
        only_embedded=True,
    ),
    Row(
        ApiKey.UPDATE_FEATURES,
        0,
        2,
        handle_update_features,
        refuse_update_features,
        only_embedded=True,
    ),
    Row(ApiKey.DESCRIBE_CLUSTER, 0, 2, handle_describe_cluster, refuse_describe_cluster),
    Row(ApiKey.DESCRIBE_PRODUCERS, 0, 0, handle_describe_producers, refuse_describe_producers),
    Row(
        ApiKey.LIST_CONFIG_RESOURCES,
        0,
        1,
        handle_list_config_resources,
        refuse_at_top_level(ListConfigResourcesResponse),
    ),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        0,
        handle_describe_topic_partitions,
        refuse_describe_topic_partitions,
    ),
)


CONTROL_HANDLERS: tuple[Row, ...] = (
    Row(
        ApiKey.CONTROLLED_SHUTDOWN,
        1,
        3,
        handle_controlled_shutdown,
        refuse_at_top_level(ControlledShutdownResponse),
        only_between_brokers=True,
    ),
    Row(
        ApiKey.ALTER_PARTITION,
        2,
        3,
        handle_alter_partition,
        refuse_at_top_level(AlterPartitionResponse),
        only_between_brokers=True,
    ),
    Row(
        ApiKey.LEADER_AND_ISR,
        5,
        7,
        handle_leader_and_isr,
        refuse_at_top_level(LeaderAndIsrResponse),
        only_between_brokers=True,
    ),
    Row(
        ApiKey.STOP_REPLICA,
        3,
        4,
        handle_stop_replica,
        refuse_at_top_level(StopReplicaResponse),
        only_between_brokers=True,
    ),
    Row(
        ApiKey.UPDATE_METADATA,
        7,
        8,
        handle_update_metadata,
        refuse_at_top_level(UpdateMetadataResponse),
        only_between_brokers=True,
    ),
)
"""The requests between the controller and the brokers of a cluster with ZooKeeper, as in Kafka 3.9.
Earlier versions do not contain the ids of topics, without which brokers cannot replicate, or leader
epochs. Kafka 4.0 removed these requests."""


def served_rows(*, is_embedded: bool, rows: Iterable[Row] = HANDLERS) -> dict[int, Row]:
    """Return the APIs that a broker serves, by key: those in `rows` that its store supports.

    Without the embedded store, the broker is part of a cluster and also serves `CONTROL_HANDLERS`.
    """
    served = [row for row in rows if is_embedded or not row.only_embedded]
    if not is_embedded:
        served += CONTROL_HANDLERS
    return {int(row.api_key): _checked(row) if row.only_between_brokers else row for row in served}


def _checked(row: Row) -> Row:
    """Return `row` with a handler that rejects requests from the listeners of clients."""

    def handle(
        request: Any, context: RequestContext, broker: Broker
    ) -> Response | Later[Any] | None:
        check_is_broker(context, broker, row.name)
        return row.handle(request, context, broker)

    return replace(row, handle=handle)


def advertised_by(rows: Iterable[Row], *, is_inter_broker: bool) -> tuple[Advertised, ...]:
    """Return the versions in ApiVersions responses on the inter-broker or another listener."""
    advertised = [row.advertised for row in rows if is_inter_broker or not row.only_between_brokers]
    return tuple(sorted(advertised))


@cache
def _advertised(is_embedded: bool, is_inter_broker: bool) -> tuple[Advertised, ...]:
    rows = served_rows(is_embedded=is_embedded).values()
    return advertised_by(rows, is_inter_broker=is_inter_broker)
