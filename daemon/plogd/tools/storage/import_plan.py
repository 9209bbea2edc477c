"""Plan the import of a stopped Kafka broker's data, or list the problems that prevent it.

This module is pure: `make_plan` builds a `Plan` from the facts that import_source.py,
log_inspection.py and the metadata readers found. import_command.py executes the plan. The plan
contains everything that plog's own metadata log needs, so that the broker finds the records that it
would have written itself when it starts for the first time.

Invariants: offsets and topic ids are kept; a leader epoch is never lower than the old broker's (the
first startup adds one, decision 0002); no producer id is assigned twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from plog.errors import InvalidConfig
from plog.settings import settings_of
from plog.types import TopicPartition, Uuid
from plogd.config import BrokerConfig
from plogd.config.broker_config import DynamicSettings
from plogd.config.dynamic_config import overlay
from plogd.coordinator.producer_ids import BLOCK_SIZE
from plogd.tools.storage.cluster_state import (
    CLUSTER_DEFAULT,
    ClusterState,
    KafkaPartition,
    KafkaTopic,
)
from plogd.tools.storage.import_source import SourceDir
from plogd.tools.storage.log_inspection import LogFacts
from plogd.topic_config import validate_overrides

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS_SETTING = "offsets.topic.num.partitions"
_DEFAULT_OFFSETS_PARTITIONS = 50
"""Kafka's default for the setting."""
_TIERED_TOPIC = "__remote_log_metadata"
_UNKNOWN_BLOCKS = 1000
"""Number of producer id blocks to skip if the assigned producer ids are unknown."""
_SHOWN = 5
"""Maximum number of items that a message lists."""
_MAX_GAPS = 100
"""Maximum number of gaps to list: a single gap is enough to reject a topic, and a wrong partition
number can leave billions of gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The command-line options; `config` is None without --config."""

    targets: tuple[str, ...]
    """New log.dirs; empty for --in-place."""
    config: BrokerConfig | None = None
    skip_incomplete: bool = False

    @property
    def in_place(self) -> bool:
        """Whether the old directories become the new directories."""
        return not self.targets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A partition to adopt, and its new log directory."""

    facts: LogFacts
    target: str
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic to adopt."""

    name: str
    topic_id: Uuid
    config: Mapping[str, str]
    partitions: Mapping[int, PlannedPartition]


@dataclass(slots=True, kw_only=True)
class Plan:
    """The actions of an import, or the `problems` to solve before it can start."""

    cluster_id: str = ""
    node_id: int = -1
    in_place: bool = False
    log_dirs: tuple[str, ...] = ()
    clean_dirs: frozenset[str] = frozenset()
    """The `log_dirs` that receive or keep a clean shutdown file."""
    topics: list[PlannedTopic] = field(default_factory=list)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    state: ClusterState = field(default_factory=ClusterState)
    next_producer_id: int = 0
    offsets: dict[str, dict[str, dict[TopicPartition, int]]] = field(default_factory=dict)
    """Checkpointed offsets by log directory, file name and partition."""
    metadata_dir: str = ""
    """The log directory for the metadata log."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings that the broker must be started with."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def partitions(self) -> list[PlannedPartition]:
        """The partitions of all topics."""
        return [x for topic in self.topics for x in topic.partitions.values()]

    @property
    def size_bytes(self) -> int:
        """Total size of the adopted files, in bytes."""
        return sum(x.facts.size_bytes for x in self.partitions)

    @property
    def converted_segments(self) -> int:
        """Number of segments to convert from an old format."""
        return sum(len(x.facts.legacy_segments) for x in self.partitions)


def check_sources(sources: Sequence[SourceDir]) -> list[str]:
    """Return the reasons why these directories do not belong to one broker; empty if they do."""
    problems = []
    first = sources[0].identity
    for source in sources[1:]:
        identity = source.identity
        if (identity.cluster_id, identity.node_id) != (first.cluster_id, first.node_id):
            problems.append(
                f"{source.path} belongs to broker {identity.node_id} of cluster "
                f"{identity.cluster_id}, but {sources[0].path} belongs to broker {first.node_id} "
                f"of cluster {first.cluster_id}; import one broker at a time"
            )
        elif identity.version != first.version:
            problems.append(
                f"{source.path} and {sources[0].path} are not in the same mode (ZooKeeper or "
                "KRaft); finish the migration before the import"
            )
    seen: dict[TopicPartition, str] = {}
    for source in sources:
        for key in source.partitions:
            if key in seen:
                problems.append(
                    f"{key} is in both {seen[key]} and {source.path}; remove the wrong copy"
                )
            seen[key] = source.path
    if sum(source.holds_metadata for source in sources) > 1:
        problems.append("two directories contain __cluster_metadata-0; remove the wrong copy")
    return problems


def is_kraft(sources: Sequence[SourceDir]) -> bool:
    """Return whether the broker is in KRaft mode, according to its meta.properties."""
    return sources[0].identity.version == 1


def state_from_logs(logs: Sequence[LogFacts], node_id: int) -> ClusterState:
    """Return the state that can be derived from the directories alone: topics and partitions."""
    state = ClusterState(has_topic_configs=False, has_producer_ids=False, may_hold_old_formats=True)
    for facts in logs:
        name, number = facts.topic_partition
        topic = state.topics.setdefault(name, KafkaTopic(name=name, topic_id=facts.topic_id))
        topic.topic_id = topic.topic_id or facts.topic_id
        topic.partitions[number] = KafkaPartition(
            replicas=(node_id,), isr=(node_id,), leader_epoch=max(facts.leader_epoch, 0)
        )
    # A gap in the partition numbers is a missing directory, which makes the topic incomplete.
    for topic in state.topics.values():
        gaps = (n for n in range(max(topic.partitions)) if n not in topic.partitions)
        for number in list(islice(gaps, _MAX_GAPS)):
            topic.partitions[number] = KafkaPartition(
                replicas=(node_id,), isr=(node_id,), leader_epoch=0
            )
    return state


def make_plan(
    sources: Sequence[SourceDir],
    state: ClusterState,
    logs: Sequence[LogFacts],
    transactions: Mapping[str, str],
    options: PlanOptions,
    new_topic_id: Callable[[], Uuid],
) -> Plan:
    """Return the plan for directories in which `check_sources` found no problem."""
    identity = sources[0].identity
    plan = Plan(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        in_place=options.in_place,
        log_dirs=options.targets or tuple(source.path for source in sources),
        state=state,
    )
    complete = _complete_topics(state, logs, plan, skip_incomplete=options.skip_incomplete)
    adopted = [facts for _, facts_by_number in complete for facts in facts_by_number.values()]
    _check_transactions(adopted, transactions, plan)
    _check_logs(adopted, plan)
    target_of = _place(adopted, sources, options.targets)
    for topic, facts_by_number in complete:
        plan.topics.append(
            PlannedTopic(
                name=topic.name,
                # Topics that were created before Kafka 2.8 have no id.
                topic_id=topic.topic_id or new_topic_id(),
                config=_topic_config(state.topic_configs.get(topic.name, {}), topic.name, plan),
                partitions={
                    number: PlannedPartition(
                        facts=facts,
                        target=target_of[facts.topic_partition],
                        # The log may contain a newer epoch than the metadata, whose last records
                        # may be lost.
                        leader_epoch=max(
                            topic.partitions[number].leader_epoch, facts.leader_epoch, 0
                        ),
                    )
                    for number, facts in sorted(facts_by_number.items())
                },
            )
        )
    plan.broker_configs = _broker_configs(state, plan)
    plan.next_producer_id = _next_producer_id(state, logs)
    _plan_directories(sources, options, plan)
    _check_settings(options, plan)
    return plan


def _complete_topics(
    state: ClusterState, logs: Sequence[LogFacts], plan: Plan, *, skip_incomplete: bool
) -> list[tuple[KafkaTopic, dict[int, LogFacts]]]:
    """Return the topics whose partitions were all found, with their logs; report the others."""
    found = {facts.topic_partition: facts for facts in logs}
    adopted = []
    for topic in sorted(state.topics.values(), key=lambda topic: topic.name):
        logs_here: dict[int, LogFacts] = {}
        missing: list[int] = []
        for number, partition in topic.partitions.items():
            facts = found.get(TopicPartition(topic.name, number))
            ours = facts is not None and _same_id(facts.topic_id, topic.topic_id)
            if facts is not None and ours and partition.is_complete_on(plan.node_id):
                logs_here[number] = facts
            else:
                missing.append(number)
        if not missing:
            adopted.append((topic, logs_here))
            _warn_of_replicas(topic, plan)
        elif not skip_incomplete:
            plan.problems.append(_incomplete(topic, missing, plan.node_id))
        else:
            plan.state.not_imported["incomplete topics"] += 1
            plan.warnings.append(f"skipped topic {topic.name}: {_missing(topic, missing)}")
    known = {facts.topic_partition for _, here in adopted for facts in here.values()}
    strays = [str(key) for key in found if key not in known and key.topic not in state.topics]
    strays += [
        str(key)
        for key, facts in found.items()
        if key.topic in state.topics
        and not _same_id(facts.topic_id, state.topics[key.topic].topic_id)
    ]
    if strays:
        plan.warnings.append(
            f"skipped {len(strays)} directories of nonexistent topics: {_some(strays)}"
        )
    return adopted


def _same_id(found: Uuid | None, expected: Uuid | None) -> bool:
    # Topics that were created before Kafka 2.8 have no id.
    return found is None or expected is None or found == expected


def _incomplete(topic: KafkaTopic, missing: Sequence[int], node_id: int) -> str:
    return (
        f"topic {topic.name}: partitions {_some(missing)} are missing or incomplete in these"
        f" directories ({_holders(topic, missing)}); specify all log.dirs of broker {node_id},"
        " reassign the partitions to it while Kafka is running, or use --skip-incomplete"
    )


def _missing(topic: KafkaTopic, missing: Sequence[int]) -> str:
    return f"incomplete partitions {_some(missing)} ({_holders(topic, missing)})"


def _holders(topic: KafkaTopic, missing: Sequence[int]) -> str:
    partition = topic.partitions[missing[0]]
    return f"partition {missing[0]}: replicas {list(partition.replicas)}, isr {list(partition.isr)}"


def _warn_of_replicas(topic: KafkaTopic, plan: Plan) -> None:
    replicas = max((len(x.replicas) for x in topic.partitions.values()), default=1)
    if replicas > 1:
        plan.warnings.append(f"topic {topic.name} had {replicas} replicas; plog keeps only one")
    least = plan.state.topic_configs.get(topic.name, {}).get("min.insync.replicas", "1")
    if least.isdigit() and int(least) > 1:
        plan.warnings.append(
            f"topic {topic.name} has min.insync.replicas={least}: with one replica, writes with "
            "acks=all fail until you lower it"
        )


def _check_transactions(
    adopted: Sequence[LogFacts], transactions: Mapping[str, str], plan: Plan
) -> None:
    if transactions:
        shown = _some([f"{key} ({state})" for key, state in sorted(transactions.items())])
        plan.problems.append(
            f"{len(transactions)} transactions are incomplete: {shown}; plog can neither commit"
            " nor abort them; start Kafka, wait until they complete (or abort them with"
            " kafka-transactions.sh), and stop Kafka cleanly"
        )
    hanging = [facts for facts in adopted if facts.open_producers]
    # An unfinished transaction also leaves an open producer, and was reported above.
    if hanging and not transactions:
        shown = _some([f"{x.topic_partition} (producer {x.open_producers[0]})" for x in hanging])
        plan.problems.append(
            f"found open transactions in {shown}; start Kafka, abort them with "
            "kafka-transactions.sh abort, and stop it cleanly"
        )


def _check_logs(adopted: Sequence[LogFacts], plan: Plan) -> None:
    for facts in adopted:
        config = plan.state.topic_configs.get(facts.topic_partition.topic, {})
        if config.get("remote.storage.enable") == "true" and facts.topic_partition.partition == 0:
            plan.problems.append(
                f"topic {facts.topic_partition.topic} uses tiered storage, whose segments are not "
                "in these directories; disable it for the topic (remote.log.delete.on.disable) or "
                "copy the topic"
            )
        if facts.topic_partition.topic == _TIERED_TOPIC and not plan.state.has_topic_configs:
            plan.warnings.append(
                f"found {_TIERED_TOPIC}: if a topic uses tiered storage, its remote segments are "
                "not imported"
            )


def _place(
    adopted: Sequence[LogFacts], sources: Sequence[SourceDir], targets: Sequence[str]
) -> dict[TopicPartition, str]:
    """Return the new log directory for each partition.

    If the numbers of targets and sources are equal, each target receives the partitions of one
    source. Otherwise, partitions are placed in descending order of size, each in the target with
    the least data.
    """
    if not targets:
        return {facts.topic_partition: facts.log_dir for facts in adopted}
    # A directory that holds only Kafka's metadata log does not need a target.
    filled_sources = [source.path for source in sources if source.partitions]
    if len(targets) == len(filled_sources):
        by_source = dict(zip(filled_sources, targets, strict=True))
        return {facts.topic_partition: by_source[facts.log_dir] for facts in adopted}
    filled = dict.fromkeys(targets, 0)
    placed = {}
    for facts in sorted(adopted, key=lambda facts: (-facts.size_bytes, facts.topic_partition)):
        target = min(filled, key=lambda path: filled[path])
        filled[target] += facts.size_bytes
        placed[facts.topic_partition] = target
    return placed


def _topic_config(config: Mapping[str, str], name: str, plan: Plan) -> dict[str, str]:
    """Return the topic's settings that plog supports and accepts."""
    kept: dict[str, str] = {}
    # Each setting is checked separately, so that an invalid setting does not exclude the others.
    for key, value in config.items():
        try:
            validate_overrides({key: value})
            kept[key] = value
        except InvalidConfig as error:
            if key != "remote.storage.enable" or value == "true":
                plan.warnings.append(f"topic {name}: did not import {key}={value}: {error}")
    try:
        validate_overrides(kept)
    except InvalidConfig as error:
        plan.problems.append(f"topic {name}: {error}; correct the setting while Kafka is running")
    return kept


def _broker_configs(state: ClusterState, plan: Plan) -> dict[str, dict[str, str]]:
    """Return the dynamic settings that plog accepts, for this broker and for all brokers."""
    own = str(plan.node_id)
    for entity, config in state.broker_configs.items():
        if entity not in (CLUSTER_DEFAULT, own):
            plan.state.not_imported["settings of other brokers"] += len(config)
    given = DynamicSettings(
        cluster=state.broker_configs.get(CLUSTER_DEFAULT, {}),
        broker=state.broker_configs.get(own, {}),
    )
    used, problems = overlay(BrokerConfig(), given)
    plan.warnings += problems
    if problems:
        plan.state.not_imported["dynamic broker settings"] += len(problems)
    kept = {CLUSTER_DEFAULT: dict(used.dynamic.cluster), own: dict(used.dynamic.broker)}
    return {entity: config for entity, config in kept.items() if config}


def _next_producer_id(state: ClusterState, logs: Sequence[LogFacts]) -> int:
    """Return an id above all ids that the old broker assigned, rounded up to a block."""
    seen = max((facts.max_producer_id for facts in logs), default=-1)
    above_seen = seen + 1
    if not state.has_producer_ids:
        # A producer may use a higher id that does not occur in any log, so leave a margin.
        above_seen += _UNKNOWN_BLOCKS * BLOCK_SIZE
    blocks = -(-max(above_seen, state.next_producer_id or 0) // BLOCK_SIZE)
    return blocks * BLOCK_SIZE


def _plan_directories(sources: Sequence[SourceDir], options: PlanOptions, plan: Plan) -> None:
    unclean = {source.path for source in sources if not source.clean}
    if unclean:
        plan.warnings.append(
            f"Kafka did not stop cleanly in {_some(sorted(unclean))}; at startup, plog will check"
            " the records and truncate an incomplete last batch"
        )
    # A partition that may need recovery also makes its new directory unclean.
    touched = {x.target for x in plan.partitions if x.facts.log_dir in unclean}
    plan.clean_dirs = frozenset(plan.log_dirs) - touched - unclean
    by_source = {source.path: source for source in sources}
    for log_dir in plan.log_dirs:
        names = {name for source in sources for name in source.offsets}
        plan.offsets[log_dir] = {name: {} for name in sorted(names)}
    for partition in plan.partitions:
        key = partition.facts.topic_partition
        for name, offsets in by_source[partition.facts.log_dir].offsets.items():
            if key in offsets:
                plan.offsets[partition.target][name][key] = offsets[key]
    holders = [source.path for source in sources if source.holds_metadata]
    plan.metadata_dir = (holders or plan.log_dirs)[0] if options.in_place else plan.log_dirs[0]
    left = [name for source in sources for name in source.left_behind]
    if left:
        plan.warnings.append(f"skipped directories of deleted or moving partitions: {_some(left)}")


def _check_settings(options: PlanOptions, plan: Plan) -> None:
    """Determine the settings that the broker must be started with, and check --config."""
    plan.settings["log.dirs"] = ",".join(plan.log_dirs)
    plan.settings["node.id"] = str(plan.node_id)
    config = options.config or BrokerConfig()
    if options.config is not None and config.node_id != plan.node_id:
        plan.problems.append(
            f"the data belongs to broker {plan.node_id}, but --config has "
            f"node.id={config.node_id}; set node.id={plan.node_id} there"
        )
    # The number of partitions determines which partition stores a group's offsets.
    row = settings_of(BrokerConfig).get(OFFSETS_PARTITIONS_SETTING)
    expected = config.value(row) if row is not None else _DEFAULT_OFFSETS_PARTITIONS
    for topic in plan.topics:
        if topic.name != OFFSETS_TOPIC or len(topic.partitions) == expected:
            continue
        plan.settings[OFFSETS_PARTITIONS_SETTING] = str(len(topic.partitions))
        problem = (
            f"{OFFSETS_TOPIC} has {len(topic.partitions)} partitions; set"
            f" {OFFSETS_PARTITIONS_SETTING}={len(topic.partitions)}, because otherwise groups"
            " cannot find their offsets"
        )
        (plan.warnings if options.config is None else plan.problems).append(problem)
    if not plan.state.has_topic_configs:
        plan.warnings.append(
            "topic settings are stored in ZooKeeper and were not read; every topic uses the"
            " broker's defaults, including retention; use --zookeeper HOST:PORT to import them"
        )


def _some(things: Sequence[object]) -> str:
    shown = ", ".join(str(thing) for thing in things[:_SHOWN])
    return shown if len(things) <= _SHOWN else f"{shown} and {len(things) - _SHOWN} more"


def not_imported_lines(counts: Counter[str]) -> Iterator[str]:
    """Yield a line of text for each kind of entity that is not imported.

    >>> list(not_imported_lines(Counter({"ACLs": 2})))
    ['not imported: 2 ACLs']
    """
    for what, count in sorted(counts.items()):
        yield f"not imported: {count} {what}"
