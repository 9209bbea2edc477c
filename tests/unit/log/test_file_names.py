"""Names of files and directories: names that Kafka writes survive a round trip."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.types import TopicPartition
from plogd.log import file_names


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log",
        "00000000000000000042.index",
        "09223372036854775807.timeindex",
        "00000000000000000042.snapshot",
        "00000000000000000042.txnindex.deleted",
        "00000000000000000042.log.cleaned",
        "00000000000000000042.log.swap",
    ],
)
def test_segment_file_names_survive_a_round_trip(name: str) -> None:
    parsed = file_names.parse_segment_file_name(name)
    assert parsed is not None
    assert file_names.segment_file_name(*parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "42.log",
        "0000000000000000004x.log",
        "00000000000000000042.log.tmp",
        "00000000000000000042",
        "00000000000000000042.log\n",
        "partition.metadata",
        "leader-epoch-checkpoint",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
    ],
)
def test_other_names_are_not_segment_files(name: str) -> None:
    assert file_names.parse_segment_file_name(name) is None


topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
partitions = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(topics, partitions)
def test_partition_directories_survive_a_round_trip(topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    parsed = file_names.parse_partition_dir_name(file_names.partition_dir_name(topic_partition))
    assert parsed == (topic_partition, "")


@settings(deadline=None)
@given(topics, partitions)
def test_deleted_directory_names_are_recognized_and_fit_a_file_name(
    topic: str, partition: int
) -> None:
    name = file_names.deleted_dir_name(TopicPartition(topic, partition), "0123456789abcdef" * 2)
    assert len(name) <= 255
    parsed = file_names.parse_partition_dir_name(name)
    assert parsed is not None
    assert parsed.state == file_names.DELETE_DIR_SUFFIX
    assert parsed.topic_partition.partition == partition
    assert topic.startswith(parsed.topic_partition.topic)


@pytest.mark.parametrize("name", ["lost+found", "plain", "-1", "topic-", "topic-x", "a/b-1", ""])
def test_other_names_are_not_partition_directories(name: str) -> None:
    assert file_names.parse_partition_dir_name(name) is None


@pytest.mark.parametrize("state", ["-future", "-stray"])
def test_future_and_stray_directories_are_recognized(state: str) -> None:
    parsed = file_names.parse_partition_dir_name(f"a.b-c-7.{'0' * 32}{state}")
    assert parsed == (TopicPartition("a.b-c", 7), state)
