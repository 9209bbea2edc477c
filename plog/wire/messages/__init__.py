"""The messages of Kafka's protocol, with a module for each API, and a table of all APIs.

The package contains every message that plog can encode; plogd/apis/api_table.py determines the APIs
and versions that the broker serves. Start with heartbeat.py, then read fetch.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.wire.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from plog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from plog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from plog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from plog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from plog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from plog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from plog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from plog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from plog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from plog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from plog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from plog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from plog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from plog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from plog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from plog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from plog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from plog.wire.messages.fetch import FetchRequest, FetchResponse
from plog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from plog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from plog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from plog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from plog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from plog.wire.messages.metadata import MetadataRequest, MetadataResponse
from plog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from plog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from plog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from plog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from plog.wire.messages.produce import ProduceRequest, ProduceResponse
from plog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from plog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from plog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from plog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from plog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from plog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from plog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from plog.wire.schema import ApiMessage


@dataclass(frozen=True, slots=True)
class Api:
    """The request and the response of an API; both have the same versions."""

    request: type[ApiMessage]
    response: type[ApiMessage]


# A list instead of classes that register themselves: the table must not depend on which modules
# have been imported.
APIS = (
    Api(ProduceRequest, ProduceResponse),
    Api(FetchRequest, FetchResponse),
    Api(ListOffsetsRequest, ListOffsetsResponse),
    Api(MetadataRequest, MetadataResponse),
    Api(LeaderAndIsrRequest, LeaderAndIsrResponse),
    Api(StopReplicaRequest, StopReplicaResponse),
    Api(UpdateMetadataRequest, UpdateMetadataResponse),
    Api(ControlledShutdownRequest, ControlledShutdownResponse),
    Api(OffsetCommitRequest, OffsetCommitResponse),
    Api(OffsetFetchRequest, OffsetFetchResponse),
    Api(FindCoordinatorRequest, FindCoordinatorResponse),
    Api(JoinGroupRequest, JoinGroupResponse),
    Api(HeartbeatRequest, HeartbeatResponse),
    Api(LeaveGroupRequest, LeaveGroupResponse),
    Api(SyncGroupRequest, SyncGroupResponse),
    Api(DescribeGroupsRequest, DescribeGroupsResponse),
    Api(ListGroupsRequest, ListGroupsResponse),
    Api(SaslHandshakeRequest, SaslHandshakeResponse),
    Api(ApiVersionsRequest, ApiVersionsResponse),
    Api(CreateTopicsRequest, CreateTopicsResponse),
    Api(DeleteTopicsRequest, DeleteTopicsResponse),
    Api(DeleteRecordsRequest, DeleteRecordsResponse),
    Api(InitProducerIdRequest, InitProducerIdResponse),
    Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    Api(EndTxnRequest, EndTxnResponse),
    Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(DescribeAclsRequest, DescribeAclsResponse),
    Api(CreateAclsRequest, CreateAclsResponse),
    Api(DeleteAclsRequest, DeleteAclsResponse),
    Api(DescribeConfigsRequest, DescribeConfigsResponse),
    Api(AlterConfigsRequest, AlterConfigsResponse),
    Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    Api(DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(SaslAuthenticateRequest, SaslAuthenticateResponse),
    Api(CreatePartitionsRequest, CreatePartitionsResponse),
    Api(DeleteGroupsRequest, DeleteGroupsResponse),
    Api(ElectLeadersRequest, ElectLeadersResponse),
    Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    Api(OffsetDeleteRequest, OffsetDeleteResponse),
    Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    Api(AlterClientQuotasRequest, AlterClientQuotasResponse),
    Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    Api(DescribeQuorumRequest, DescribeQuorumResponse),
    Api(AlterPartitionRequest, AlterPartitionResponse),
    Api(UpdateFeaturesRequest, UpdateFeaturesResponse),
    Api(DescribeClusterRequest, DescribeClusterResponse),
    Api(DescribeProducersRequest, DescribeProducersResponse),
    Api(UnregisterBrokerRequest, UnregisterBrokerResponse),
    Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    Api(ListConfigResourcesRequest, ListConfigResourcesResponse),
    Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

API_BY_KEY: dict[int, Api] = {api.request.api_key: api for api in APIS}
