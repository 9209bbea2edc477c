"""The metadata of a cluster as a tree of names, in the layout of Kafka's metadata shell.

`MetadataTree.replay` applies one record, by Kafka's rules; the records of a metadata transaction
take effect at its end record (KIP-868). A directory is a dict; any other node is a leaf, which is
displayed with `str`.

The tree deliberately differs from Kafka's in four ways. It does not contain the secrets of SCRAM
users; the metadata version is shown without Java's ``Optional[…]``; default entities of quotas have
a name (Kafka's shell omits it, which makes their quotas unreachable); and ``/local/commitId`` does
not exist.

Source: Kafka 4.3 org.apache.kafka.image.node, MetadataDelta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType, WireEnum
from plog.metadata_versions import METADATA_VERSIONS
from plog.types import ZERO_UUID, Uuid, uuid_to_text
from plog.wire.as_json import java_double
from plog.wire.internal.kraft_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    RegisterControllerRecord,
    RemoveDelegationTokenRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from plog.wire.internal.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from plogd.features import METADATA_VERSION

Node: TypeAlias = "dict[str, Node] | object"

# The numbers of Kafka's ConfigResource.Type, SecurityProtocol and ScramMechanism.
_RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
# Kafka joins the names of an entity in this order.
_QUOTA_ENTITIES = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))
_NO_LEADER_CHANGE = -2  # As in Kafka's LeaderConstants.
_NO_STATE_CHANGE = -1


@dataclass(slots=True)
class Partition:
    """A partition's registration, as of the last replayed record."""

    replicas: list[int]
    directories: list[Uuid]
    isr: list[int]
    removing: list[int]
    adding: list[int]
    eligible: list[int]
    last_known_eligible: list[int]
    leader: int
    recovering: int
    leader_epoch: int
    partition_epoch: int

    def change(self, record: PartitionChangeRecord) -> None:
        """Apply a change; fields that are None leave the registration unchanged."""
        if record.replicas is not None:
            self.replicas = record.replicas
        if record.isr is not None:
            self.isr = record.isr
        if record.removing_replicas is not None:
            self.removing = record.removing_replicas
        if record.adding_replicas is not None:
            self.adding = record.adding_replicas
        if record.directories:
            self.directories = record.directories
        if record.eligible_leader_replicas is not None:
            self.eligible = record.eligible_leader_replicas
        if record.last_known_elr is not None:
            self.last_known_eligible = record.last_known_elr
        if record.leader_recovery_state != _NO_STATE_CHANGE:
            self.recovering = record.leader_recovery_state
        if record.leader != _NO_LEADER_CHANGE:
            self.leader = record.leader
            # The record does not contain epochs: Kafka's PartitionRegistration.merge also
            # increments both.
            self.leader_epoch += 1
        self.partition_epoch += 1

    def __str__(self) -> str:
        directories = ", ".join(
            # Records without directories get Kafka's DirectoryId.MIGRATING, the zero UUID
            # (KIP-858).
            map(uuid_to_text, self.directories or [ZERO_UUID] * len(self.replicas))
        )
        state = "RECOVERING" if self.recovering else "RECOVERED"
        return (
            # The format of Kafka's PartitionRegistration.toString, which users of its shell know.
            f"PartitionRegistration(replicas={self.replicas}, directories=[{directories}],"
            f" isr={self.isr}, removingReplicas={self.removing}, addingReplicas={self.adding},"
            f" elr={self.eligible}, lastKnownElr={self.last_known_eligible},"
            f" leader={self.leader}, leaderRecoveryState={state},"
            f" leaderEpoch={self.leader_epoch}, partitionEpoch={self.partition_epoch})"
        )


@dataclass(slots=True)
class BrokerNode:
    """A broker's registration with all later changes applied."""

    record: RegisterBrokerRecord

    def change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Apply a change; a flag of 1 sets the field, -1 clears it, 0 leaves it unchanged."""
        if record.fenced:
            self.record.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            self.record.in_controlled_shutdown = record.in_controlled_shutdown > 0
        # An empty list means that the directories are unchanged; a broker always has at least one.
        if record.log_dirs:
            self.record.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            self.record.cordoned_log_dirs = record.cordoned_log_dirs

    def __str__(self) -> str:
        record = self.record
        rack = "Optional.empty" if record.rack is None else f"Optional[{record.rack}]"
        directories = ", ".join(map(uuid_to_text, record.log_dirs))
        cordoned = "null"
        if record.cordoned_log_dirs is not None:
            cordoned = f"[{', '.join(map(uuid_to_text, record.cordoned_log_dirs))}]"
        return (
            f"BrokerRegistration(id={record.broker_id}, epoch={record.broker_epoch},"
            f" incarnationId={uuid_to_text(record.incarnation_id)},"
            f" listeners=[{_endpoints(record.end_points)}],"
            f" supportedFeatures={{{_features(record.features)}}}, rack={rack},"
            f" fenced={_java(record.fenced)},"
            f" inControlledShutdown={_java(record.in_controlled_shutdown)},"
            f" isMigratingZkBroker={_java(record.is_migrating_zk_broker)},"
            f" directories=[{directories}], cordonedDirectories={cordoned})"
        )


class MetadataTree:
    """The metadata tree. `from_plog` is True if plog wrote the log, and False if Kafka did."""

    def __init__(self, *, from_plog: bool) -> None:
        self._from_plog = from_plog
        self._pending: list[MetadataRecord] | None = None
        self._names: dict[Uuid, str] = {}
        self._topics: dict[str, dict[str, Node]] = {}
        self._topics_by_id: dict[str, Node] = {}
        self._brokers: dict[str, BrokerNode] = {}
        self._controllers: dict[str, Node] = {}
        self._configs: dict[str, dict[str, Node]] = {}
        self._quotas: dict[str, dict[str, Node]] = {}
        self._acls: dict[str, Node] = {}
        self._tokens: dict[str, Node] = {}
        # Kafka's tree also contains the directories of mechanisms without users.
        self._scram: dict[str, dict[str, Node]] = {name: {} for name in _MECHANISMS.values()}
        self._features: dict[str, int] = {}
        self._next_producer_id = -1

    def root(self, provenance: str, version: str) -> dict[str, Node]:
        """Return the current tree.

        `provenance` describes the last replayed record; `version` is plog's version.
        """
        # Kafka's layout shows the metadata version under a separate name.
        features = {
            f"finalized_{name}": level
            for name, level in self._features.items()
            if name != METADATA_VERSION
        }
        level = self._features.get(METADATA_VERSION, 0)
        # A log of a later Kafka may have a level whose name is unknown here.
        metadata_version = METADATA_VERSIONS.get(level, str(level))
        image: dict[str, Node] = {
            "acls": {"byId": self._acls},
            "clientQuotas": self._quotas,
            "cluster": {"brokers": self._brokers, "controllers": self._controllers},
            "configs": self._configs,
            "delegationToken": self._tokens,
            "features": {"metadataVersion": metadata_version, **features},
            "producerIds": {"nextProducerId": self._next_producer_id},
            "provenance": provenance,
            "scram": self._scram,
            "topics": {"byId": self._topics_by_id, "byName": self._topics},
        }
        return {"image": image, "local": {"version": version}}

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record. Raises KeyError if it refers to something that does not exist."""
        # Kafka's image changes only at the end of a metadata transaction, or not at all (KIP-868).
        if isinstance(record, BeginTransactionRecord):
            self._pending = []
        elif isinstance(record, AbortTransactionRecord):
            self._pending = None
        elif isinstance(record, EndTransactionRecord):
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply(each)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord() | PartitionRecord() | PartitionChangeRecord():
                self._apply_topic(record)
            case RemoveTopicRecord():
                name = self._names.pop(record.topic_id)
                del self._topics[name], self._topics_by_id[uuid_to_text(record.topic_id)]
                # Kafka's ConfigurationsDelta also removes the settings of a deleted topic, without
                # any records.
                self._configs.pop(f"TOPIC:{name}", None)
            case ClearElrRecord():
                self._clear_eligible(record.topic_name)
            case ConfigRecord():
                self._apply_config(record)
            case FeatureLevelRecord():
                self._features[record.name] = record.feature_level
                # Level 0 removes a feature (FeatureLevelRecord.json).
                if not record.feature_level:
                    del self._features[record.name]
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case ClientQuotaRecord():
                self._apply_quota(record)
            case _:
                self._apply_to_cluster(record)

    def _apply_to_cluster(self, record: MetadataRecord) -> None:
        match record:
            case RegisterBrokerRecord():
                self._brokers[str(record.broker_id)] = BrokerNode(record)
                # Decision 0002: when a plog broker starts, all partitions that it leads begin a new
                # leader epoch; in Kafka, a registration does not change any epochs.
                if self._from_plog:
                    self._raise_epochs(record.broker_id)
            case BrokerRegistrationChangeRecord():
                self._brokers[str(record.broker_id)].change(record)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                broker = self._brokers[str(record.id)].record
                broker.fenced = isinstance(record, FenceBrokerRecord)
            case UnregisterBrokerRecord():
                del self._brokers[str(record.broker_id)]
            case RegisterControllerRecord():
                self._controllers[str(record.controller_id)] = controller_text(record)
            case _:
                self._apply_security(record)

    def _apply_security(self, record: MetadataRecord) -> None:
        match record:
            case AccessControlEntryRecord():
                self._acls[uuid_to_text(record.id)] = acl_text(record)
            case RemoveAccessControlEntryRecord():
                del self._acls[uuid_to_text(record.id)]
            case UserScramCredentialRecord():
                self._scram[_MECHANISMS[record.mechanism]][record.name] = (
                    "ScramCredentialData(salt=[redacted], storedKey=[redacted],"
                    f" serverKey=[redacted], iterations={record.iterations})"
                )
            case RemoveUserScramCredentialRecord():
                del self._scram[_MECHANISMS[record.mechanism]][record.name]
            case DelegationTokenRecord():
                self._tokens[record.token_id] = token_text(record)
            case RemoveDelegationTokenRecord():
                del self._tokens[record.token_id]

    # -- topics, settings and quotas -----------------------------------------------------------

    def _apply_topic(self, record: TopicRecord | PartitionRecord | PartitionChangeRecord) -> None:
        if isinstance(record, TopicRecord):
            text = uuid_to_text(record.topic_id)
            self._names[record.topic_id] = record.name
            node: dict[str, Node] = {"id": text, "name": record.name}
            # Both names share one node, so that later records change both.
            self._topics[record.name] = self._topics_by_id[text] = node
            return
        topic = self._topics[self._names[record.topic_id]]
        number = str(record.partition_id)
        if isinstance(record, PartitionRecord):
            topic[number] = _partition(record)
            return
        partition = topic[number]
        assert isinstance(partition, Partition)
        partition.change(record)

    def _partitions(self) -> list[Partition]:
        nodes = (node for topic in self._topics.values() for node in topic.values())
        return [node for node in nodes if isinstance(node, Partition)]

    def _raise_epochs(self, broker_id: int) -> None:
        for partition in self._partitions():
            if partition.leader == broker_id:
                partition.leader_epoch += 1
                partition.partition_epoch += 1

    def _clear_eligible(self, topic_name: str) -> None:
        topics = [self._topics[topic_name]] if topic_name else self._topics.values()
        for topic in topics:
            for node in topic.values():
                if isinstance(node, Partition) and (node.eligible or node.last_known_eligible):
                    node.eligible, node.last_known_eligible = [], []
                    node.partition_epoch += 1

    def _apply_config(self, record: ConfigRecord) -> None:
        kind = _RESOURCES.get(record.resource_type, f"UNKNOWN_{record.resource_type}")
        # The settings of all brokers have an empty resource name.
        name = f"{kind}:{record.resource_name}" if record.resource_name else kind
        settings = self._configs.setdefault(name, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if not settings:
            del self._configs[name]

    def _apply_quota(self, record: ClientQuotaRecord) -> None:
        given = {part.entity_type: part.entity_name for part in record.entity}
        name = "_".join(
            f"{shown}({_escaped(given[kind])})" for kind, shown in _QUOTA_ENTITIES if kind in given
        )
        quotas = self._quotas.setdefault(name, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = java_double(record.value)
        if not quotas:
            del self._quotas[name]


def _partition(record: PartitionRecord) -> Partition:
    return Partition(
        replicas=record.replicas,
        directories=record.directories,
        isr=record.isr,
        removing=record.removing_replicas,
        adding=record.adding_replicas,
        eligible=record.eligible_leader_replicas or [],
        last_known_eligible=record.last_known_elr or [],
        leader=record.leader,
        recovering=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
    )


def acl_text(record: AccessControlEntryRecord) -> str:
    """Return an ACL as one line of text."""
    return (
        # Kafka's StandardAcl is a Java record, whose text has brackets.
        f"StandardAcl[resourceType={_name(AclResourceType, record.resource_type)},"
        f" resourceName={record.resource_name},"
        f" patternType={_name(AclPatternType, record.pattern_type)},"
        f" principal={record.principal}, host={record.host},"
        f" operation={_name(AclOperation, record.operation)},"
        f" permissionType={_name(AclPermission, record.permission_type)}]"
    )


def token_text(record: DelegationTokenRecord) -> str:
    """Return a delegation token as one line, with the unbalanced brackets of Kafka's text."""
    return (
        f"DelegationTokenDatatokenId={record.token_id}(owner={record.owner}"
        f"(tokenRequester={record.requester}(renewers={' '.join(record.renewers)},"
        f" issueTimestamp={record.issue_timestamp}, maxTimestamp={record.max_timestamp}),"
        f" expiryTimestamp={record.expiration_timestamp}"
    )


def controller_text(record: RegisterControllerRecord) -> str:
    """Return a controller's registration as one line of text."""
    return (
        f"ControllerRegistration(id={record.controller_id},"
        f" incarnationId={uuid_to_text(record.incarnation_id)},"
        f" zkMigrationReady={_java(record.zk_migration_ready)},"
        f" listeners=[{_endpoints(record.end_points)}],"
        f" supportedFeatures={{{_features(record.features)}}})"
    )


def _name(names: type[WireEnum], number: int) -> str:
    known = names(number)
    return known.name if known.is_known else f"UNKNOWN({number})"


def _endpoints(end_points: list[BrokerEndpoint]) -> str:
    return ", ".join(
        f"Endpoint(listenerName='{each.name}',"
        f" securityProtocol={_PROTOCOLS.get(each.security_protocol, each.security_protocol)},"
        f" host='{each.host}', port={each.port})"
        # Kafka's toString methods also sort by name.
        for each in sorted(end_points, key=lambda each: each.name)
    )


def _features(features: list[BrokerFeature]) -> str:
    return ", ".join(
        f"{each.name}: {each.min_supported_version}-{each.max_supported_version}"
        for each in sorted(features, key=lambda each: each.name)
    )


def _escaped(name: str | None) -> str:
    if name is None:
        return "<default>"
    # As in Kafka, because brackets enclose the names of quota entities.
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _java(value: bool) -> str:
    return "true" if value else "false"
