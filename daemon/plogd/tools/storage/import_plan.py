"""Whether a stopped Kafka broker's data can be adopted, and what exactly is to be done.

Pure: from what import_source.py, log_inspection.py and the readers of metadata found, a `Plan` is
made, or the list of all that stands in the way. Nothing is copied here; import_command.py carries
plans out. The plan also has the records of plog's own metadata log, so that our start finds what it
would have written itself.

Invariants: offsets and topic ids stay; leader epochs never fall below any the old broker used (the
first start adds one, decision 0002); no producer id is given out twice.
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
_TIERED_TOPIC = "__remote_log_metadata"
_UNKNOWN_BLOCKS = 1000
"""How many blocks of producer ids are passed over where nobody wrote down which were given."""
_SHOWN = 5
_GAPS_TOLD = 100
"""One is enough to refuse a topic; a number may be in the billions by mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the user asked for; `config` is None where no --config was given."""

    targets: tuple[str, ...]
    """New log.dirs; empty for --in-place."""
    config: BrokerConfig | None = None
    skip_incomplete: bool = False
    accept_aborted: bool = False

    @property
    def in_place(self) -> bool:
        """Whether the old directories become the new ones."""
        return not self.targets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A partition to adopt, and the log directory it gets."""

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
    """What will be done; with `problems`, what must be mended before anything is."""

    cluster_id: str = ""
    node_id: int = -1
    in_place: bool = False
    log_dirs: tuple[str, ...] = ()
    clean_dirs: frozenset[str] = frozenset()
    """Those of `log_dirs` that get, or keep, the mark of a clean stop."""
    topics: list[PlannedTopic] = field(default_factory=list)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    state: ClusterState = field(default_factory=ClusterState)
    next_producer_id: int = 0
    offsets: dict[str, dict[str, dict[TopicPartition, int]]] = field(default_factory=dict)
    """The checkpoints of each log directory: directory, file name, partition."""
    metadata_dir: str = ""
    """The log directory that gets the metadata log."""
    settings: dict[str, str] = field(default_factory=dict)
    """What the broker has to be started with."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def partitions(self) -> list[PlannedPartition]:
        """Of all topics."""
        return [x for topic in self.topics for x in topic.partitions.values()]

    @property
    def size_bytes(self) -> int:
        """Of all that is adopted."""
        return sum(x.facts.size_bytes for x in self.partitions)

    @property
    def converted_segments(self) -> int:
        """How many segments are written anew because of their old format."""
        return sum(len(x.facts.legacy_segments) for x in self.partitions)


def check_sources(sources: Sequence[SourceDir]) -> list[str]:
    """What keeps these directories from being those of one broker; nothing if they are."""
    problems = []
    first = sources[0].identity
    for source in sources[1:]:
        identity = source.identity
        if (identity.cluster_id, identity.node_id) != (first.cluster_id, first.node_id):
            problems.append(
                f"{source.path} belongs to broker {identity.node_id} of cluster "
                f"{identity.cluster_id}, {sources[0].path} to broker {first.node_id} of cluster "
                f"{first.cluster_id}: import one broker at a time"
            )
        elif identity.version != first.version:
            problems.append(
                f"{source.path} and {sources[0].path} are not in the same mode (ZooKeeper or "
                "KRaft): finish the migration before the import"
            )
    seen: dict[TopicPartition, str] = {}
    for source in sources:
        for key in source.partitions:
            if key in seen:
                problems.append(
                    f"{key} is in {seen[key]} and in {source.path}: remove the one that is wrong"
                )
            seen[key] = source.path
    if sum(source.holds_metadata for source in sources) > 1:
        problems.append("two directories hold __cluster_metadata-0: remove the one that is wrong")
    return problems


def is_kraft(sources: Sequence[SourceDir]) -> bool:
    """Whether the broker kept its metadata in a log of its own; its meta.properties tell."""
    return sources[0].identity.version == 1


def state_from_logs(logs: Sequence[LogFacts], node_id: int) -> ClusterState:
    """The topics as the directories alone tell of them; nothing else is known."""
    state = ClusterState(has_topic_configs=False, has_producer_ids=False, may_hold_old_formats=True)
    for facts in logs:
        name, number = facts.topic_partition
        topic = state.topics.setdefault(name, KafkaTopic(name=name, topic_id=facts.topic_id))
        topic.topic_id = topic.topic_id or facts.topic_id
        topic.partitions[number] = KafkaPartition(
            replicas=(node_id,), isr=(node_id,), leader_epoch=max(facts.leader_epoch, 0)
        )
    for topic in state.topics.values():  # A gap in the numbers is a directory that is missing.
        gaps = (n for n in range(max(topic.partitions)) if n not in topic.partitions)
        for number in list(islice(gaps, _GAPS_TOLD)):
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
    """The plan for directories that `check_sources` has found nothing against."""
    identity = sources[0].identity
    plan = Plan(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        in_place=options.in_place,
        log_dirs=options.targets or tuple(source.path for source in sources),
        state=state,
    )
    held = _adopted(state, logs, plan, skip_incomplete=options.skip_incomplete)
    adopted = [facts for _, facts_by_number in held for facts in facts_by_number.values()]
    _refuse_what_cannot_be(adopted, transactions, plan, accept_aborted=options.accept_aborted)
    target_of = _place(adopted, sources, options.targets)
    for topic, facts_by_number in held:
        plan.topics.append(
            PlannedTopic(
                name=topic.name,
                topic_id=topic.topic_id or new_topic_id(),
                config=_topic_config(state.topic_configs.get(topic.name, {}), topic.name, plan),
                partitions={
                    number: PlannedPartition(
                        facts=facts,
                        target=target_of[facts.topic_partition],
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


def _adopted(
    state: ClusterState, logs: Sequence[LogFacts], plan: Plan, *, skip_incomplete: bool
) -> list[tuple[KafkaTopic, dict[int, LogFacts]]]:
    """The topics of which every partition is here, with their logs; the rest is reported."""
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
            plan.state.not_imported["topics that are not complete here"] += 1
            plan.warnings.append(f"left out {topic.name}: {_not_here(topic, missing, plan)}")
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
            f"{len(strays)} directories belong to no topic there is and are left out: "
            f"{_some(strays)}"
        )
    return adopted


def _same_id(found: Uuid | None, expected: Uuid | None) -> bool:
    return found is None or expected is None or found == expected


def _incomplete(topic: KafkaTopic, missing: Sequence[int], node_id: int) -> str:
    return (
        f"topic {topic.name}: partitions {_some(missing)} are not held completely in these "
        f"directories ({_holders(topic, missing)}): name all log.dirs of broker {node_id}, or "
        "reassign them to it while Kafka runs, or leave the topic out with --skip-incomplete"
    )


def _not_here(topic: KafkaTopic, missing: Sequence[int], plan: Plan) -> str:
    return f"partitions {_some(missing)} ({_holders(topic, missing)})"


def _holders(topic: KafkaTopic, missing: Sequence[int]) -> str:
    partition = topic.partitions[missing[0]]
    return f"partition {missing[0]}: replicas {list(partition.replicas)}, isr {list(partition.isr)}"


def _warn_of_replicas(topic: KafkaTopic, plan: Plan) -> None:
    replicas = max((len(x.replicas) for x in topic.partitions.values()), default=1)
    if replicas > 1:
        plan.warnings.append(f"topic {topic.name} had {replicas} replicas; here it has one")
    least = plan.state.topic_configs.get(topic.name, {}).get("min.insync.replicas", "1")
    if least.isdigit() and int(least) > 1:
        plan.warnings.append(
            f"topic {topic.name} has min.insync.replicas={least}: with one replica writes with "
            "acks=all are refused until you lower it"
        )


def _refuse_what_cannot_be(
    adopted: Sequence[LogFacts],
    transactions: Mapping[str, str],
    plan: Plan,
    *,
    accept_aborted: bool,
) -> None:
    if transactions:
        shown = _some([f"{key} ({state})" for key, state in sorted(transactions.items())])
        plan.problems.append(
            f"{len(transactions)} transactions are not finished: {shown}; plog could neither "
            "commit nor abort them: start Kafka, let them end (or abort them with "
            "kafka-transactions.sh), and stop it cleanly"
        )
    hanging = [facts for facts in adopted if facts.open_producers]
    if hanging and not transactions:
        shown = _some([f"{x.topic_partition} (producer {x.open_producers[0]})" for x in hanging])
        plan.problems.append(
            f"open transactions in {shown}: start Kafka, abort them with kafka-transactions.sh "
            "abort, and stop it cleanly"
        )
    aborted = [str(facts.topic_partition) for facts in adopted if facts.has_aborted]
    if aborted:
        told = (
            f"{_some(aborted)} hold records of aborted transactions, which plog would show to "
            "read_committed consumers"
        )
        if accept_aborted:
            plan.warnings.append(told)
        else:
            plan.problems.append(
                f"{told}: wait until retention has removed them, or accept that with "
                "--accept-aborted"
            )
    for facts in adopted:
        if facts.unfinished_swap:
            plan.problems.append(
                f"{facts.directory}/{facts.unfinished_swap} is left of a compaction that was cut "
                "off: start Kafka once and stop it cleanly"
            )
        config = plan.state.topic_configs.get(facts.topic_partition.topic, {})
        if config.get("remote.storage.enable") == "true" and facts.topic_partition.partition == 0:
            plan.problems.append(
                f"topic {facts.topic_partition.topic} has tiered storage, whose segments are not "
                "here: disable it for the topic (remote.log.delete.on.disable) or copy the topic"
            )
        if facts.topic_partition.topic == _TIERED_TOPIC and not plan.state.has_topic_configs:
            plan.warnings.append(
                f"there is a {_TIERED_TOPIC}: if a topic has tiered storage, what is only there is "
                "not imported"
            )


def _place(
    adopted: Sequence[LogFacts], sources: Sequence[SourceDir], targets: Sequence[str]
) -> dict[TopicPartition, str]:
    """The new log directory of each partition: one for one, or the largest to the emptiest."""
    if not targets:
        return {facts.topic_partition: facts.log_dir for facts in adopted}
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
    """The settings plog knows and takes, so that the topic can be loaded."""
    kept: dict[str, str] = {}
    for key, value in config.items():
        try:
            validate_overrides({key: value})
            kept[key] = value
        except InvalidConfig as error:
            if key != "remote.storage.enable" or value == "true":
                plan.warnings.append(f"topic {name}: {key}={value} is not taken over: {error}")
    try:
        validate_overrides(kept)
    except InvalidConfig as error:
        plan.problems.append(f"topic {name}: {error}: correct that while Kafka runs")
    return kept


def _broker_configs(state: ClusterState, plan: Plan) -> dict[str, dict[str, str]]:
    """Dynamic settings of this broker and of all brokers, as far as plog takes them."""
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
    """Above all the old broker gave out; rounded up to a block."""
    seen = max((facts.max_producer_id for facts in logs), default=-1)
    above_seen = seen + 1
    if not state.has_producer_ids:
        above_seen += _UNKNOWN_BLOCKS * BLOCK_SIZE
    blocks = -(-max(above_seen, state.next_producer_id or 0) // BLOCK_SIZE)
    return blocks * BLOCK_SIZE


def _plan_directories(sources: Sequence[SourceDir], options: PlanOptions, plan: Plan) -> None:
    unclean = {source.path for source in sources if not source.clean}
    if unclean:
        plan.warnings.append(
            f"Kafka did not stop cleanly in {_some(sorted(unclean))}: imported without the mark "
            "of a clean stop, so that the first start checks the records and cuts a torn end"
        )
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
        plan.warnings.append(f"directories on their way out are not imported: {_some(left)}")


def _check_settings(options: PlanOptions, plan: Plan) -> None:
    """What the broker must be started with, held against --config."""
    plan.settings["log.dirs"] = ",".join(plan.log_dirs)
    plan.settings["node.id"] = str(plan.node_id)
    config = options.config or BrokerConfig()
    if options.config is not None and config.node_id != plan.node_id:
        plan.problems.append(
            f"the data belongs to broker {plan.node_id}, --config says node.id={config.node_id}: "
            f"set node.id={plan.node_id} there"
        )
    row = settings_of(BrokerConfig).get(OFFSETS_PARTITIONS_SETTING)
    expected = config.value(row) if row is not None else _DEFAULT_OFFSETS_PARTITIONS
    for topic in plan.topics:
        if topic.name != OFFSETS_TOPIC or len(topic.partitions) == expected:
            continue
        plan.settings[OFFSETS_PARTITIONS_SETTING] = str(len(topic.partitions))
        told = (
            f"{OFFSETS_TOPIC} has {len(topic.partitions)} partitions: "
            f"{OFFSETS_PARTITIONS_SETTING}={len(topic.partitions)} must be set, or groups would "
            "look for their offsets in the wrong place"
        )
        (plan.warnings if options.config is None else plan.problems).append(told)
    if not plan.state.has_topic_configs:
        plan.warnings.append(
            "settings of topics are in ZooKeeper and were not read: every topic gets the "
            "broker's defaults, retention too; give --zookeeper HOST:PORT to take them over"
        )


def _some(things: Sequence[object]) -> str:
    shown = ", ".join(str(thing) for thing in things[:_SHOWN])
    return shown if len(things) <= _SHOWN else f"{shown} and {len(things) - _SHOWN} more"


def not_imported_lines(counts: Counter[str]) -> Iterator[str]:
    """What is left behind, for people.

    >>> list(not_imported_lines(Counter({"ACLs": 2})))
    ['not imported: 2 ACLs']
    """
    for what, count in sorted(counts.items()):
        yield f"not imported: {count} {what}"
