"""Every error plog raises.

A rule that a client can break raises a `KafkaError` subclass, anywhere in the pure rooms; only
apis/dispatch.py turns it into the code on the wire. The text is for people and travels along where
the protocol has a place for it. What they have in common is in error_base.py, their codes in
error_codes.py; those of transactions are in transaction_errors.py.
"""

from __future__ import annotations

from functools import cache

from plog.error_base import KafkaError as KafkaError  # Part of this module, for who imports them.
from plog.error_base import PlogError as PlogError
from plog.error_codes import ErrorCode as ErrorCode
from plog.transaction_errors import (
    ConcurrentTransactions as ConcurrentTransactions,
)
from plog.transaction_errors import (
    InvalidProducerIdMapping as InvalidProducerIdMapping,
)
from plog.transaction_errors import (
    InvalidTransactionTimeout as InvalidTransactionTimeout,
)
from plog.transaction_errors import (
    InvalidTxnState as InvalidTxnState,
)
from plog.transaction_errors import (
    ProducerFenced as ProducerFenced,
)
from plog.transaction_errors import (
    TransactionAbortable as TransactionAbortable,
)
from plog.transaction_errors import (
    TransactionalIdAuthorizationFailed as TransactionalIdAuthorizationFailed,
)


class OffsetOutOfRange(KafkaError):
    """The offset lies outside what this partition's log holds."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(KafkaError):
    """A record batch does not match its checksum, or its size field lies."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartition(KafkaError):
    """This broker hosts no such topic or partition."""

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
    """The text beside a committed offset is longer than offset.metadata.max.bytes allows."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CoordinatorLoadInProgress(KafkaError):
    """The coordinator is still reading its log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(KafkaError):
    """There is no coordinator for this key."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(KafkaError):
    """This broker is not the coordinator for this key."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicException(KafkaError):
    """The name is not one a topic may have."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLarge(KafkaError):
    """A batch is larger than a whole segment may be."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicas(KafkaError):
    """Fewer in-sync replicas than min.insync.replicas: nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    """In-sync replicas fell below min.insync.replicas after the append."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcks(KafkaError):
    """acks must be -1, 0 or 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGeneration(KafkaError):
    """The group's generation is another one: join again."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocol(KafkaError):
    """The member supports no protocol that all of the group support."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupId(KafkaError):
    """The group id is empty, or not one a group may have."""

    code = ErrorCode.INVALID_GROUP_ID


class UnknownMemberId(KafkaError):
    """The group has no member of this id: join as a new one."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidCommitOffsetSize(KafkaError):
    """The offsets of one request do not fit into one batch: commit them in several requests."""

    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class InvalidSessionTimeout(KafkaError):
    """The session timeout is out of the bounds group.min/max.session.timeout.ms set."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgress(KafkaError):
    """The group is about to begin a new generation: join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class TopicAuthorizationFailed(KafkaError):
    """The principal may not do this to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(KafkaError):
    """The principal may not do this to the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(KafkaError):
    """The principal may not do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestamp(KafkaError):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedSaslMechanism(KafkaError):
    """The broker knows no such SASL mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class UnsupportedVersion(KafkaError):
    """The broker does not serve this version of the request."""

    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExists(KafkaError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(KafkaError):
    """A topic needs at least one partition."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(KafkaError):
    """More replicas than brokers, or fewer than one."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(KafkaError):
    """The replica assignment names unknown brokers or leaves gaps."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(KafkaError):
    """A setting is unknown or its value out of bounds."""

    code = ErrorCode.INVALID_CONFIG


class NotController(KafkaError):
    """This broker is not the controller."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidRequest(KafkaError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormat(KafkaError):
    """Record batches of magic 0 and 1 are not taken."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolation(KafkaError):
    """The request breaks a rule this cluster sets."""

    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumber(KafkaError):
    """An idempotent producer's batch came before one that precedes it."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumber(KafkaError):
    """A batch older than those remembered for its producer came again."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(KafkaError):
    """A newer producer has taken over, or a transaction has timed out."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class KafkaStorageError(KafkaError):
    """The log directory refused to write, or is offline."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFound(KafkaError):
    """The directory is not one of log.dirs."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class UnknownProducerId(KafkaError):
    """Nothing is remembered of this producer id."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class NonEmptyGroup(KafkaError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFound(KafkaError):
    """There is no group of this id."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFound(KafkaError):
    """There is no such fetch session (any more)."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(KafkaError):
    """The request is not the next one of its fetch session."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFound(KafkaError):
    """The leader has no listener of the name the request came in by."""

    code = ErrorCode.LISTENER_NOT_FOUND


class TopicDeletionDisabled(KafkaError):
    """delete.topic.enable is false."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


class FencedLeaderEpoch(KafkaError):
    """The client knows an older leader epoch than the broker."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    """The client knows a newer leader epoch than the broker."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionType(KafkaError):
    """The compression codec is unknown, or too new for the request's version."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OffsetNotAvailable(KafkaError):
    """The high watermark has not yet reached this leader epoch."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequired(KafkaError):
    """A member without an id is to join again with the one it was given."""

    code = ErrorCode.MEMBER_ID_REQUIRED


class PreferredLeaderNotAvailable(KafkaError):
    """The broker that should lead the partition cannot."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class GroupMaxSizeReached(KafkaError):
    """The group has as many members as group.max.size lets it have."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceId(KafkaError):
    """Another member has taken over this group instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class EligibleLeadersNotAvailable(KafkaError):
    """No broker is left that could lead the partition."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(KafkaError):
    """The partition has the leader it should have."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgress(KafkaError):
    """The partition is not being moved."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class InvalidRecord(KafkaError):
    """A batch's records break the rules of the format or of the topic."""

    code = ErrorCode.INVALID_RECORD


class ResourceNotFound(KafkaError):
    """There is no such resource."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class DuplicateResource(KafkaError):
    """The request names a resource more than once."""

    code = ErrorCode.DUPLICATE_RESOURCE


class UnacceptableCredential(KafkaError):
    """The credential breaks the rules for credentials."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class InvalidUpdateVersion(KafkaError):
    """A feature cannot have this level."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class UnknownTopicId(KafkaError):
    """This broker hosts no topic of this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicId(KafkaError):
    """The topic id is not the one the log was made for."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class GroupSubscribedToTopic(KafkaError):
    """Members of the group consume the topic, so its offsets cannot be deleted."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class UnstableOffsetCommit(KafkaError):
    """An offset was committed in a transaction that has not ended yet."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class FetchSessionTopicIdError(KafkaError):
    """A fetch session changed between topic names and topic ids."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class MismatchedEndpointType(KafkaError):
    """The listener is not of the type that was asked about."""

    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE


class UnsupportedEndpointType(KafkaError):
    """There is no such type of endpoint."""

    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


_CLASS_BY_CODE: dict[int, type[KafkaError]] = {x.code: x for x in KafkaError.__subclasses__()}


def error_from_code(code: int, message: str = "") -> KafkaError:
    """The error a peer's code stands for; of a class named after it where we never raise it.

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


@cache
def _class_of(code: ErrorCode) -> type[KafkaError]:
    words = code.name.split("_")
    return type("".join(map(str.title, words)), (KafkaError,), {"code": code})
