"""storage/import_plan.py: plans, and the problems and warnings of an import."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import MetaProperties
from plogd.tools.storage.cluster_state import ClusterState, KafkaPartition, KafkaTopic
from plogd.tools.storage.import_plan import (
    Plan,
    PlanOptions,
    check_sources,
    make_plan,
    state_from_logs,
)
from plogd.tools.storage.import_source import SourceDir
from plogd.tools.storage.log_inspection import LogFacts
from tests.helpers.programs.kafka_data import CLUSTER_ID, topic_id

NODE = 7
NEW_ID = topic_id(20)
IDS = {"clicks": topic_id(1), "views": topic_id(2), "__consumer_offsets": topic_id(3)}


def _source(path: str = "/kafka", *, clean: bool = True, **fields: Any) -> SourceDir:
    identity = MetaProperties(cluster_id=CLUSTER_ID, node_id=NODE)
    values: dict[str, Any] = {
        "identity": identity, "partitions": (TopicPartition(f"in{path}", 0),), "left_behind": (),
        "offsets": {}, "holds_metadata": path == "/kafka", **fields,
    }  # fmt: skip
    return SourceDir(path=path, clean=clean, **values)


def _facts(topic: str, number: int = 0, *, log_dir: str = "/kafka", **fields: Any) -> LogFacts:
    values: dict[str, Any] = {
        "topic_id": IDS[topic], "sizes": {"00000000000000000000.log": 100}, **fields,
    }  # fmt: skip
    return LogFacts(
        topic_partition=TopicPartition(topic, number),
        log_dir=log_dir,
        directory=f"{log_dir}/{topic}-{number}",
        **values,
    )


def _state(*topics: str, partitions: int = 1, **fields: Any) -> ClusterState:
    state = ClusterState(**fields)
    for name in topics or ("clicks",):
        topic = KafkaTopic(name=name, topic_id=IDS[name])
        for number in range(partitions):
            topic.partitions[number] = KafkaPartition(replicas=(NODE,), isr=(NODE,), leader_epoch=5)
        state.topics[name] = topic
    return state


def _plan(
    state: ClusterState | None = None,
    logs: list[LogFacts] | None = None,
    *,
    sources: list[SourceDir] | None = None,
    transactions: dict[str, str] | None = None,
    targets: tuple[str, ...] = ("/plog",),
    **options: Any,
) -> Plan:
    return make_plan(
        sources or [_source()],
        state or _state(),
        [_facts("clicks")] if logs is None else logs,
        transactions or {},
        PlanOptions(targets=targets, **options),
        lambda: NEW_ID,
    )


def _problem(plan: Plan) -> str:
    [problem] = plan.problems
    return problem


# -- sources -----------------------------------------------------------------------------------


def test_directories_of_one_broker_have_no_problems() -> None:
    assert check_sources([_source(), _source("/other")]) == []


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"identity": MetaProperties(cluster_id="x", node_id=NODE)}, "one broker at a time"),
        ({"identity": MetaProperties(cluster_id=CLUSTER_ID, node_id=8)}, "one broker at a time"),
        (
            {"identity": MetaProperties(cluster_id=CLUSTER_ID, node_id=NODE, version=0)},
            "finish the migration",
        ),
        ({"partitions": (TopicPartition("clicks", 0),)}, "clicks-0 is in both /kafka and /other"),
        ({"holds_metadata": True}, "two directories contain __cluster_metadata-0"),
    ],
)
def test_directories_of_several_brokers_or_modes_are_rejected(
    other: dict[str, Any], problem: str
) -> None:
    first = _source(partitions=(TopicPartition("clicks", 0),))
    [found] = check_sources([first, _source("/other", **other)])
    assert problem in found


# -- topics ------------------------------------------------------------------------------------


def test_topic_keeps_id_and_highest_leader_epoch() -> None:
    plan = _plan(logs=[_facts("clicks", leader_epoch=9)])
    [topic] = plan.topics
    assert (topic.name, topic.topic_id) == ("clicks", IDS["clicks"])
    assert topic.partitions[0].leader_epoch == 9
    assert _plan(logs=[_facts("clicks", leader_epoch=2)]).partitions[0].leader_epoch == 5
    assert plan.problems == plan.warnings == []


def test_topic_without_id_gets_one() -> None:
    state = _state()
    state.topics["clicks"].topic_id = None
    assert _plan(state, [_facts("clicks", topic_id=None)]).topics[0].topic_id == NEW_ID


@pytest.mark.parametrize(
    "partition",
    [
        KafkaPartition(replicas=(8,), isr=(8,), leader_epoch=1),
        KafkaPartition(replicas=(7, 8), isr=(8,), leader_epoch=1),
    ],
)
def test_incomplete_partition_is_reported(
    partition: KafkaPartition,
) -> None:
    state = _state("clicks", "views", partitions=2)
    state.topics["clicks"].partitions[1] = partition
    logs = [_facts(topic, number) for topic in ("clicks", "views") for number in (0, 1)]
    problem = _problem(_plan(state, logs))
    assert "topic clicks: partitions 1 are missing or incomplete" in problem
    assert "--skip-incomplete" in problem
    plan = _plan(state, logs, skip_incomplete=True)
    assert plan.problems == []
    assert [topic.name for topic in plan.topics] == ["views"]
    assert plan.state.not_imported["incomplete topics"] == 1


def test_missing_partition_is_reported() -> None:
    assert "specify all log.dirs of broker 7" in _problem(_plan(_state(partitions=2)))


def test_only_replica_is_imported_with_empty_isr() -> None:
    state = _state()
    state.topics["clicks"].partitions[0].isr = ()
    assert _plan(state).problems == []


def test_lost_replicas_and_min_insync_replicas_are_warned_about() -> None:
    state = _state(topic_configs={"clicks": {"min.insync.replicas": "2"}})
    state.topics["clicks"].partitions[0] = KafkaPartition(
        replicas=(7, 8), isr=(7, 8), leader_epoch=1
    )
    replicas, least = _plan(state).warnings
    assert replicas == "topic clicks had 2 replicas; plog keeps only one"
    assert "min.insync.replicas=2" in least


def test_directories_of_unknown_topics_or_other_ids_are_skipped() -> None:
    strays = [_facts("views"), _facts("clicks", topic_id=topic_id(9))]
    plan = _plan(_state(), [*strays, _facts("clicks", 0)])
    assert "skipped 1 directories of nonexistent topics" in plan.warnings[0]
    stray = _facts("clicks", topic_id=topic_id(9))
    assert "are missing or incomplete" in _problem(_plan(_state(), [stray]))


def test_topics_come_from_directories_without_zookeeper() -> None:
    logs = [_facts("clicks", 0, leader_epoch=4), _facts("clicks", 2)]
    state = state_from_logs(logs, NODE)
    assert sorted(state.topics["clicks"].partitions) == [0, 1, 2]
    plan = _plan(state, logs)
    assert "partitions 1 are missing or incomplete" in _problem(plan)
    assert any("topic settings are stored in ZooKeeper" in warning for warning in plan.warnings)
    state = state_from_logs(logs[:1], NODE)
    assert _plan(state, logs[:1]).partitions[0].leader_epoch == 4


def test_gaps_are_limited_when_partition_number_is_huge() -> None:
    logs = [_facts("clicks", 0), _facts("clicks", 2_147_483_647)]
    state = state_from_logs(logs, NODE)
    assert len(state.topics["clicks"].partitions) < 200
    assert "partitions 1, 2, 3, 4, 5 and 95 more" in _problem(_plan(state, logs))


# -- problems in the logs ----------------------------------------------------------------------


def test_unfinished_transactions_are_rejected() -> None:
    plan = _plan(
        logs=[_facts("clicks", open_producers=[4711])], transactions={"payments": "ongoing"}
    )
    assert "1 transactions are incomplete: payments (ongoing)" in _problem(plan)


def test_hanging_transaction_is_rejected() -> None:
    plan = _plan(logs=[_facts("clicks", open_producers=[4711])])
    assert "open transactions in clicks-0 (producer 4711)" in _problem(plan)


def test_tiered_storage_is_rejected() -> None:
    state = _state(topic_configs={"clicks": {"remote.storage.enable": "true"}})
    assert "uses tiered storage" in _problem(_plan(state))
    state = _state(topic_configs={"clicks": {"remote.storage.enable": "false"}})
    plan = _plan(state)
    assert plan.problems == plan.warnings == []


# -- settings ----------------------------------------------------------------------------------


def test_unsupported_topic_settings_are_skipped_with_warning() -> None:
    config = {"retention.ms": "5", "message.format.version": "0.10.0", "segment.bytes": "none"}
    plan = _plan(_state(topic_configs={"clicks": config}))
    assert plan.topics[0].config == {"retention.ms": "5"}
    assert plan.problems == []
    assert len(plan.warnings) == 2


def test_dynamic_broker_settings_are_imported() -> None:
    configs = {
        "": {"log.retention.ms": "9", "log.cleaner.dedupe.buffer.size": "5"},
        "7": {"log.retention.ms": "8", "log.retention.bytes": "many"},
        "8": {"log.retention.ms": "7"},
    }
    plan = _plan(_state(broker_configs=configs))
    assert plan.broker_configs == {"": {"log.retention.ms": "9"}, "7": {"log.retention.ms": "8"}}
    assert plan.state.not_imported == Counter(
        {"settings of other brokers": 1, "dynamic broker settings": 2}
    )


def test_required_settings_are_reported_and_checked_against_config() -> None:
    assert _plan().settings == {"log.dirs": "/plog", "node.id": "7"}
    config = dataclasses.replace(BrokerConfig(), node_id=1)
    assert "set node.id=7 there" in _problem(_plan(config=config))
    assert _plan(config=dataclasses.replace(BrokerConfig(), node_id=7)).problems == []


def test_number_of_offsets_partitions_must_match_settings() -> None:
    state = _state("__consumer_offsets", partitions=3)
    logs = [_facts("__consumer_offsets", number) for number in range(3)]
    plan = _plan(state, logs)
    assert plan.settings["offsets.topic.num.partitions"] == "3"
    assert "set offsets.topic.num.partitions=3" in plan.warnings[0]
    config = dataclasses.replace(BrokerConfig(), node_id=7)
    assert "set offsets.topic.num.partitions=3" in _problem(_plan(state, logs, config=config))


# -- producer ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [(None, -1, 0), (3000, -1, 3000), (3000, 2999, 3000), (3000, 3000, 4000), (2999, -1, 3000)],
)
def test_next_producer_id_is_above_assigned_ids(
    known: int | None, seen: int, expected: int
) -> None:
    plan = _plan(_state(next_producer_id=known), [_facts("clicks", max_producer_id=seen)])
    assert plan.next_producer_id == expected


@pytest.mark.parametrize(("seen", "expected"), [(-1, 1_000_000), (41, 1_001_000)])
def test_producer_ids_are_skipped_when_assigned_ids_are_unknown(seen: int, expected: int) -> None:
    # Producers may hold ids with which they have not written anything.
    logs = [_facts("clicks", max_producer_id=seen)]
    assert _plan(state_from_logs(logs, NODE), logs).next_producer_id == expected


# -- directories -------------------------------------------------------------------------------


def _two_dirs(**fields: Any) -> dict[str, Any]:
    logs = [
        _facts("clicks", 0, sizes={"a.log": 10}),
        _facts("clicks", 1, sizes={"a.log": 30}, log_dir="/other"),
        _facts("clicks", 2, sizes={"a.log": 25}),
    ]
    sources = [_source(**fields), _source("/other")]
    return {"state": _state(partitions=3), "logs": logs, "sources": sources}


def _places(plan: Plan) -> dict[int, str]:
    return {x.facts.topic_partition.partition: x.target for x in plan.partitions}


def test_targets_correspond_to_sources_when_their_numbers_match() -> None:
    assert _places(_plan(targets=("/a", "/b"), **_two_dirs())) == {0: "/a", 1: "/b", 2: "/a"}


def test_directory_with_only_metadata_is_not_counted_as_source() -> None:
    parts = _two_dirs()
    parts["sources"].append(_source("/meta", partitions=()))
    assert _places(_plan(targets=("/a", "/b"), **parts)) == {0: "/a", 1: "/b", 2: "/a"}


def test_targets_are_filled_evenly_when_numbers_differ() -> None:
    assert set(_places(_plan(targets=("/a",), **_two_dirs())).values()) == {"/a"}
    places = _places(_plan(targets=("/a", "/b", "/c"), **_two_dirs()))
    assert places == {1: "/a", 2: "/b", 0: "/c"}


def test_in_place_import_keeps_directories_and_replaces_kafkas_metadata() -> None:
    plan = _plan(targets=(), **_two_dirs())
    assert _places(plan) == {0: "/kafka", 1: "/other", 2: "/kafka"}
    assert plan.log_dirs == ("/kafka", "/other")
    assert plan.metadata_dir == "/kafka"


def test_unclean_source_leaves_target_without_clean_mark() -> None:
    parts = _two_dirs()
    parts["sources"][0] = _source(clean=False)
    plan = _plan(targets=("/a", "/b"), **parts)
    assert plan.clean_dirs == {"/b"}
    assert "Kafka did not stop cleanly in /kafka" in plan.warnings[0]
    assert _plan(targets=("/a",), **parts).clean_dirs == frozenset()
    assert _plan(targets=(), **parts).clean_dirs == {"/other"}


def test_checkpoints_follow_their_partitions() -> None:
    offsets = {file_names.HIGH_WATERMARK_CHECKPOINT: {TopicPartition("clicks", 0): 5}}
    plan = _plan(targets=("/a", "/b"), **_two_dirs(offsets=offsets))
    assert plan.offsets == {
        "/a": offsets,
        "/b": {file_names.HIGH_WATERMARK_CHECKPOINT: {}},
    }


def test_directories_of_deleted_partitions_are_reported() -> None:
    plan = _plan(sources=[_source(left_behind=("clicks-1.abc-delete",))])
    assert "clicks-1.abc-delete" in plan.warnings[0]
