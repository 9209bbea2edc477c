"""Every error plog raises, and Kafka's error codes.

A rule that a client can break raises a `KafkaError` subclass, anywhere in the pure rooms; only
apis/dispatch.py turns it into the code on the wire. The text is for people and travels along where
the protocol has a place for it. Codes and their "retriable" mark: Kafka 4.3 Errors.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class PlogError(Exception):
    """The base of all errors this project raises on purpose."""


class ErrorCode(IntEnum):
    """Kafka's error codes; negative is unknown, 0 is success."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class KafkaError(PlogError):
    """An error with a code that a client sees. The message says what, where and what to do."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in _RETRIABLE

    @property
    def message(self) -> str:
        """The text for people: what was raised with it, else what the error means."""
        return str(self) or (type(self).__doc__ or "").strip()


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


class CoordinatorNotAvailable(KafkaError):
    """There is no coordinator for this key."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(KafkaError):
    """This broker is not the coordinator for this key."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicException(KafkaError):
    """The name is not one a topic may have."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class NotEnoughReplicas(KafkaError):
    """Fewer in-sync replicas than min.insync.replicas: nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    """In-sync replicas fell below min.insync.replicas after the append."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcks(KafkaError):
    """acks must be -1, 0 or 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class TopicAuthorizationFailed(KafkaError):
    """The principal may not do this to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(KafkaError):
    """The principal may not do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestamp(KafkaError):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


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
    """A newer producer with the same id has taken over."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(KafkaError):
    """The operation does not fit the transaction's state."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMapping(KafkaError):
    """The producer id is not the one of this transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TransactionalIdAuthorizationFailed(KafkaError):
    """The principal may not use this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class KafkaStorageError(KafkaError):
    """The log directory refused to write, or is offline."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFound(KafkaError):
    """The directory is not one of log.dirs."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class UnknownProducerId(KafkaError):
    """Nothing is remembered of this producer id."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


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


class InvalidRecord(KafkaError):
    """A batch's records break the rules of the format or of the topic."""

    code = ErrorCode.INVALID_RECORD


class ResourceNotFound(KafkaError):
    """There is no such resource."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class UnknownTopicId(KafkaError):
    """This broker hosts no topic of this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicId(KafkaError):
    """The topic id is not the one the log was made for."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class FetchSessionTopicIdError(KafkaError):
    """A fetch session changed between topic names and topic ids."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


_CLASS_BY_CODE: dict[int, type[KafkaError]] = {
    error.code: error for error in KafkaError.__subclasses__()
}


def error_from_code(code: int, message: str = "") -> KafkaError:
    """The error a peer's code stands for; a `KafkaError` named after the code where we raise none.

    >>> error_from_code(3)
    UnknownTopicOrPartition()
    """
    found = _CLASS_BY_CODE.get(code)
    if found is not None:
        return found(message) if message else found()
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else f"code {code}"
    return KafkaError(f"{name}: {message}" if message else name)
