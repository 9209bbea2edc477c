"""storage/import_plan.py: what may be adopted, what may not, and what is said about it."""

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
from tests.helpers.kafka_data import CLUSTER_ID, topic_id

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


# -- whose directories these are ---------------------------------------------------------------


def test_directories_of_one_broker_belong_together() -> None:
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
        ({"partitions": (TopicPartition("clicks", 0),)}, "clicks-0 is in /kafka and in /other"),
        ({"holds_metadata": True}, "two directories hold __cluster_metadata-0"),
    ],
)
def test_directories_that_do_not_belong_together_are_refused(
    other: dict[str, Any], problem: str
) -> None:
    first = _source(partitions=(TopicPartition("clicks", 0),))
    [told] = check_sources([first, _source("/other", **other)])
    assert problem in told


# -- topics ------------------------------------------------------------------------------------


def test_a_topic_keeps_its_id_and_its_epoch_never_falls() -> None:
    plan = _plan(logs=[_facts("clicks", leader_epoch=9)])
    [topic] = plan.topics
    assert (topic.name, topic.topic_id) == ("clicks", IDS["clicks"])
    assert topic.partitions[0].leader_epoch == 9
    assert _plan(logs=[_facts("clicks", leader_epoch=2)]).partitions[0].leader_epoch == 5
    assert plan.problems == plan.warnings == []


def test_a_topic_without_an_id_gets_one() -> None:
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
def test_a_partition_held_by_another_broker_or_not_in_sync_here_is_reported(
    partition: KafkaPartition,
) -> None:
    state = _state("clicks", "views", partitions=2)
    state.topics["clicks"].partitions[1] = partition
    logs = [_facts(topic, number) for topic in ("clicks", "views") for number in (0, 1)]
    problem = _problem(_plan(state, logs))
    assert "topic clicks: partitions 1 are not held completely" in problem
    assert "--skip-incomplete" in problem
    plan = _plan(state, logs, skip_incomplete=True)
    assert plan.problems == []
    assert [topic.name for topic in plan.topics] == ["views"]
    assert plan.state.not_imported["topics that are not complete here"] == 1


def test_a_partition_whose_directory_was_not_named_is_reported() -> None:
    assert "name all log.dirs of broker 7" in _problem(_plan(_state(partitions=2)))


def test_the_only_replica_is_taken_even_if_nobody_is_in_sync() -> None:
    state = _state()
    state.topics["clicks"].partitions[0].isr = ()
    assert _plan(state).problems == []


def test_topics_that_lose_replicas_are_told_with_what_that_means_for_writes() -> None:
    state = _state(topic_configs={"clicks": {"min.insync.replicas": "2"}})
    state.topics["clicks"].partitions[0] = KafkaPartition(
        replicas=(7, 8), isr=(7, 8), leader_epoch=1
    )
    replicas, least = _plan(state).warnings
    assert replicas == "topic clicks had 2 replicas; here it has one"
    assert "min.insync.replicas=2" in least


def test_directories_of_no_known_topic_or_of_another_id_are_left_out() -> None:
    strays = [_facts("views"), _facts("clicks", topic_id=topic_id(9))]
    plan = _plan(_state(), [*strays, _facts("clicks", 0)])
    assert "1 directories belong to no topic there is" in plan.warnings[0]
    stray = _facts("clicks", topic_id=topic_id(9))
    assert "not held completely" in _problem(_plan(_state(), [stray]))


def test_the_directories_alone_tell_the_topics_where_zookeeper_is_not_asked() -> None:
    logs = [_facts("clicks", 0, leader_epoch=4), _facts("clicks", 2)]
    state = state_from_logs(logs, NODE)
    assert sorted(state.topics["clicks"].partitions) == [0, 1, 2]
    plan = _plan(state, logs)
    assert "partitions 1 are not held completely" in _problem(plan)
    assert any("settings of topics are in ZooKeeper" in warning for warning in plan.warnings)
    state = state_from_logs(logs[:1], NODE)
    assert _plan(state, logs[:1]).partitions[0].leader_epoch == 4


def test_a_directory_with_an_absurd_number_is_a_topic_with_gaps() -> None:
    logs = [_facts("clicks", 0), _facts("clicks", 2_147_483_647)]
    state = state_from_logs(logs, NODE)
    assert len(state.topics["clicks"].partitions) < 200
    assert "partitions 1, 2, 3, 4, 5 and 95 more" in _problem(_plan(state, logs))


# -- what cannot be ----------------------------------------------------------------------------


def test_transactions_under_way_are_refused_by_their_names() -> None:
    plan = _plan(
        logs=[_facts("clicks", open_producers=[4711])], transactions={"payments": "ongoing"}
    )
    assert "1 transactions are not finished: payments (ongoing)" in _problem(plan)


def test_a_hanging_transaction_is_refused_by_its_partition() -> None:
    plan = _plan(logs=[_facts("clicks", open_producers=[4711])])
    assert "open transactions in clicks-0 (producer 4711)" in _problem(plan)


def test_aborted_records_are_refused_until_accepted() -> None:
    logs = [_facts("clicks", has_aborted=True)]
    assert "--accept-aborted" in _problem(_plan(logs=logs))
    plan = _plan(logs=logs, accept_aborted=True)
    assert plan.problems == []
    assert "read_committed consumers" in plan.warnings[0]


def test_a_compaction_that_was_cut_off_is_left_to_kafka() -> None:
    plan = _plan(logs=[_facts("clicks", unfinished_swap="x.log.swap")])
    assert "/kafka/clicks-0/x.log.swap" in _problem(plan)


def test_tiered_storage_is_refused() -> None:
    state = _state(topic_configs={"clicks": {"remote.storage.enable": "true"}})
    assert "has tiered storage" in _problem(_plan(state))
    state = _state(topic_configs={"clicks": {"remote.storage.enable": "false"}})
    plan = _plan(state)
    assert plan.problems == plan.warnings == []


# -- settings ----------------------------------------------------------------------------------


def test_settings_that_plog_does_not_take_are_left_out_and_said() -> None:
    config = {"retention.ms": "5", "message.format.version": "0.10.0", "segment.bytes": "none"}
    plan = _plan(_state(topic_configs={"clicks": config}))
    assert plan.topics[0].config == {"retention.ms": "5"}
    assert plan.problems == []
    assert len(plan.warnings) == 2


def test_dynamic_broker_settings_are_taken_for_this_broker_and_for_all() -> None:
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


def test_what_the_broker_must_be_started_with_is_told_and_held_against_the_config() -> None:
    assert _plan().settings == {"log.dirs": "/plog", "node.id": "7"}
    config = dataclasses.replace(BrokerConfig(), node_id=1)
    assert "set node.id=7 there" in _problem(_plan(config=config))
    assert _plan(config=dataclasses.replace(BrokerConfig(), node_id=7)).problems == []


def test_another_number_of_offset_partitions_than_is_set_would_lose_groups() -> None:
    state = _state("__consumer_offsets", partitions=3)
    logs = [_facts("__consumer_offsets", number) for number in range(3)]
    plan = _plan(state, logs)
    assert plan.settings["offsets.topic.num.partitions"] == "3"
    assert "offsets.topic.num.partitions=3 must be set" in plan.warnings[0]
    config = dataclasses.replace(BrokerConfig(), node_id=7)
    assert "must be set" in _problem(_plan(state, logs, config=config))


# -- producer ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [(None, -1, 0), (3000, -1, 3000), (3000, 2999, 3000), (3000, 3000, 4000), (2999, -1, 3000)],
)
def test_the_next_producer_id_is_above_all_that_were_given(
    known: int | None, seen: int, expected: int
) -> None:
    plan = _plan(_state(next_producer_id=known), [_facts("clicks", max_producer_id=seen)])
    assert plan.next_producer_id == expected


@pytest.mark.parametrize(("seen", "expected"), [(-1, 1_000_000), (41, 1_001_000)])
def test_where_nobody_says_which_producer_ids_were_given_plenty_are_passed_over(
    seen: int, expected: int
) -> None:
    """Some that never wrote anything may be in the hands of producers."""
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


def test_as_many_targets_as_sources_are_filled_one_for_one() -> None:
    assert _places(_plan(targets=("/a", "/b"), **_two_dirs())) == {0: "/a", 1: "/b", 2: "/a"}


def test_a_directory_of_metadata_alone_counts_for_nothing() -> None:
    parts = _two_dirs()
    parts["sources"].append(_source("/meta", partitions=()))
    assert _places(_plan(targets=("/a", "/b"), **parts)) == {0: "/a", 1: "/b", 2: "/a"}


def test_other_targets_are_filled_evenly() -> None:
    assert set(_places(_plan(targets=("/a",), **_two_dirs())).values()) == {"/a"}
    places = _places(_plan(targets=("/a", "/b", "/c"), **_two_dirs()))
    assert places == {1: "/a", 2: "/b", 0: "/c"}


def test_in_place_everything_stays_and_the_metadata_goes_where_kafkas_is() -> None:
    plan = _plan(targets=(), **_two_dirs())
    assert _places(plan) == {0: "/kafka", 1: "/other", 2: "/kafka"}
    assert plan.log_dirs == ("/kafka", "/other")
    assert plan.metadata_dir == "/kafka"


def test_an_unclean_directory_gives_no_clean_mark_to_what_comes_from_it() -> None:
    parts = _two_dirs()
    parts["sources"][0] = _source(clean=False)
    plan = _plan(targets=("/a", "/b"), **parts)
    assert plan.clean_dirs == {"/b"}
    assert "Kafka did not stop cleanly in /kafka" in plan.warnings[0]
    assert _plan(targets=("/a",), **parts).clean_dirs == frozenset()
    assert _plan(targets=(), **parts).clean_dirs == {"/other"}


def test_checkpoints_go_where_their_partitions_go() -> None:
    offsets = {file_names.HIGH_WATERMARK_CHECKPOINT: {TopicPartition("clicks", 0): 5}}
    plan = _plan(targets=("/a", "/b"), **_two_dirs(offsets=offsets))
    assert plan.offsets == {
        "/a": offsets,
        "/b": {file_names.HIGH_WATERMARK_CHECKPOINT: {}},
    }


def test_directories_on_their_way_out_are_named() -> None:
    plan = _plan(sources=[_source(left_behind=("clicks-1.abc-delete",))])
    assert "clicks-1.abc-delete" in plan.warnings[0]
