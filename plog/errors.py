"""The errors that brokers return to clients, one class for each error code.

If a client breaks a rule, code in the pure packages raises a subclass of `KafkaError`; only
plogd/apis/dispatch.py converts errors into codes. A response contains the error's message if the
protocol has a field for it. The default message is the docstring of the class, so these docstrings
are written for users. The base classes are in error_base.py, the codes in error_codes.py.
"""

from __future__ import annotations

from functools import cache

from plog.error_base import KafkaError as KafkaError  # Re-exported.
from plog.error_base import PlogError as PlogError
from plog.error_codes import ErrorCode as ErrorCode


class OffsetOutOfRange(KafkaError):
    """The offset is outside the range of this partition's log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(KafkaError):
    """A record batch does not match its checksum or has the wrong size."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartition(KafkaError):
    """This broker does not host the topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailable(KafkaError):
    """The partition has no leader yet."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollower(KafkaError):
    """This broker does not lead the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOut(KafkaError):
    """The request's deadline passed before it could be completed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class MessageTooLarge(KafkaError):
    """A batch is larger than max.message.bytes allows."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class OffsetMetadataTooLarge(KafkaError):
    """The metadata of a committed offset is longer than offset.metadata.max.bytes allows."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CoordinatorLoadInProgress(KafkaError):
    """The coordinator is still loading its state from the log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(KafkaError):
    """No coordinator is available for this key."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(KafkaError):
    """This broker is not the coordinator for this key."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicException(KafkaError):
    """The topic name is not valid."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLarge(KafkaError):
    """A batch is larger than the maximum size of a segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicas(KafkaError):
    """There are fewer in-sync replicas than min.insync.replicas: nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    """In-sync replicas fell below min.insync.replicas after the append."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcks(KafkaError):
    """acks must be -1, 0 or 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGeneration(KafkaError):
    """The member's generation is not the group's current one: join again."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocol(KafkaError):
    """The member does not support any protocol that all members of the group support."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupId(KafkaError):
    """The group id is empty or invalid."""

    code = ErrorCode.INVALID_GROUP_ID


class UnknownMemberId(KafkaError):
    """The group has no member with this id: join as a new member."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeout(KafkaError):
    """The session timeout is outside the bounds of group.min/max.session.timeout.ms."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgress(KafkaError):
    """The group is rebalancing: join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSize(KafkaError):
    """The offsets in one request do not fit into one batch: commit them in several requests."""

    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class TopicAuthorizationFailed(KafkaError):
    """The principal is not authorized to perform this operation on the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(KafkaError):
    """The principal is not authorized to perform this operation on the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(KafkaError):
    """The principal is not authorized to perform this operation on the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestamp(KafkaError):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedSaslMechanism(KafkaError):
    """The broker does not support the SASL mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class UnsupportedVersion(KafkaError):
    """The broker does not serve this version of the request."""

    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExists(KafkaError):
    """A topic with this name already exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(KafkaError):
    """A topic needs at least one partition."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(KafkaError):
    """The replication factor is below 1, or above the number of brokers."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(KafkaError):
    """The replica assignment contains unknown brokers or leaves gaps."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(KafkaError):
    """A setting is unknown, or its value is out of bounds."""

    code = ErrorCode.INVALID_CONFIG


class NotController(KafkaError):
    """This broker is not the controller."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidRequest(KafkaError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormat(KafkaError):
    """Record batches of magic 0 and 1 are not supported."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolation(KafkaError):
    """The request violates a policy of this cluster."""

    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumber(KafkaError):
    """An idempotent producer's batch arrived before its predecessor."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumber(KafkaError):
    """The batch duplicates one that is older than the batches remembered for its producer."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(KafkaError):
    """A newer producer has fenced this one, or a transaction has timed out."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(KafkaError):
    """The operation is not allowed in the transaction's state."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMapping(KafkaError):
    """The producer id does not belong to this transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(KafkaError):
    """The transaction timeout exceeds transaction.max.timeout.ms, or is not positive."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(KafkaError):
    """The coordinator is still completing the producer's previous transaction."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionalIdAuthorizationFailed(KafkaError):
    """The principal is not authorized to use this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class KafkaStorageError(KafkaError):
    """The log directory is offline, or a write to it failed."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFound(KafkaError):
    """The directory is not one of log.dirs."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class UnknownProducerId(KafkaError):
    """The partition does not have any state for this producer id."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class NonEmptyGroup(KafkaError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFound(KafkaError):
    """There is no group with this id."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFound(KafkaError):
    """The fetch session does not exist, or was closed."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(KafkaError):
    """The request is not the next one in its fetch session."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFound(KafkaError):
    """The leader does not have a listener with the same name as the receiving listener."""

    code = ErrorCode.LISTENER_NOT_FOUND


class TopicDeletionDisabled(KafkaError):
    """Topics cannot be deleted because delete.topic.enable is false."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


class FencedLeaderEpoch(KafkaError):
    """The client's leader epoch is older than the broker's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    """The client's leader epoch is newer than the broker's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionType(KafkaError):
    """The compression codec is unknown, or too new for the request's version."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OffsetNotAvailable(KafkaError):
    """The high watermark has not yet reached this leader epoch."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequired(KafkaError):
    """A new member must join again with the member id it has received."""

    code = ErrorCode.MEMBER_ID_REQUIRED


class ReplicaNotAvailable(KafkaError):
    """The replica cannot take a role now, because its log lacks records."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class PreferredLeaderNotAvailable(KafkaError):
    """The partition's preferred leader is not available."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class GroupMaxSizeReached(KafkaError):
    """The group already has group.max.size members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceId(KafkaError):
    """Another member with the same group instance id has fenced this one."""

    code = ErrorCode.FENCED_INSTANCE_ID


class EligibleLeadersNotAvailable(KafkaError):
    """No eligible leader of the partition is available."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ReassignmentInProgress(KafkaError):
    """Partitions of the topic are being moved, so it cannot get more partitions."""

    code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class ElectionNotNeeded(KafkaError):
    """The partition does not need an election."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgress(KafkaError):
    """The partition is not being moved."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class GroupSubscribedToTopic(KafkaError):
    """Members of the group consume the topic, so its offsets cannot be deleted."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class InvalidRecord(KafkaError):
    """A batch's records violate the rules of the record format or of the topic."""

    code = ErrorCode.INVALID_RECORD


class UnstableOffsetCommit(KafkaError):
    """An offset was committed in a transaction that has not ended yet."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ProducerFenced(KafkaError):
    """A newer producer with the same transactional id has fenced this one: close it."""

    code = ErrorCode.PRODUCER_FENCED


class ResourceNotFound(KafkaError):
    """The resource does not exist."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class DuplicateResource(KafkaError):
    """The request contains a resource more than once."""

    code = ErrorCode.DUPLICATE_RESOURCE


class UnacceptableCredential(KafkaError):
    """The credential violates the rules for credentials."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class StaleControllerEpoch(KafkaError):
    """The request is from an earlier controller, or contains an earlier leader epoch."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH


class InvalidUpdateVersion(KafkaError):
    """A feature cannot have this level, or a state has changed since the request read it."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class UnknownTopicId(KafkaError):
    """This broker does not host a topic with this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicId(KafkaError):
    """The topic id differs from the topic id of the log."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class StaleBrokerEpoch(KafkaError):
    """The request is from or for an earlier run of the broker (KIP-380)."""

    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerIdNotRegistered(KafkaError):
    """No broker with this id is registered in the cluster."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class IneligibleReplica(KafkaError):
    """A broker may not join the in-sync replicas, because it is fenced or has restarted."""

    code = ErrorCode.INELIGIBLE_REPLICA


class FetchSessionTopicIdError(KafkaError):
    """A fetch session switched between topic names and topic ids."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class MismatchedEndpointType(KafkaError):
    """The listener is not of the requested type."""

    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE


class UnsupportedEndpointType(KafkaError):
    """The type of endpoint is unknown."""

    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed: abort it, then begin a new one."""

    code = ErrorCode.TRANSACTION_ABORTABLE


_CLASS_BY_CODE: dict[int, type[KafkaError]] = {x.code: x for x in KafkaError.__subclasses__()}


def error_from_code(code: int, message: str = "") -> KafkaError:
    """Return the error for a code received from a peer.

    >>> error_from_code(3)
    UnknownTopicOrPartition()
    >>> error_from_code(89, "later"), error_from_code(999)
    (ThrottlingQuotaExceeded('THROTTLING_QUOTA_EXCEEDED: later'), KafkaError('code 999'))
    """
    found = _CLASS_BY_CODE.get(code)
    if found is not None:
        return found(message) if message else found()
    if code not in ErrorCode.__members__.values():
        return KafkaError(f"code {code}: {message}" if message else f"code {code}")
    name = ErrorCode(code).name
    return _class_of(ErrorCode(code))(f"{name}: {message}" if message else name)


# Creates a class for a code that plog never raises. Cached, so that a code has only one class.
@cache
def _class_of(code: ErrorCode) -> type[KafkaError]:
    words = code.name.split("_")
    return type("".join(map(str.title, words)), (KafkaError,), {"code": code})
