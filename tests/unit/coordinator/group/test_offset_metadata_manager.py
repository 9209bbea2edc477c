"""Committed offsets: operations return records, and replay applies them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from plog.wire.internal.group_records import OffsetCommitKey, OffsetCommitValue
from plogd.config import BrokerConfig
from plogd.coordinator.group.group_metadata_manager import GroupMetadataManager
from plogd.coordinator.group.offset_metadata_manager import (
    Fetched,
    FetchedOffset,
    OffsetCommit,
    OffsetMetadataManager,
    OffsetToCommit,
)
from plogd.coordinator.runtime.coordinator_result import Result
from tests.helpers.group.group_shard import GroupShard


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    STABLE = "Stable"


@dataclasses.dataclass
class FakeGroup:
    """A group with configurable properties."""

    state: GroupState = GroupState.STABLE
    protocol_type: str | None = "consumer"
    empty_since: int | None = None
    subscribed_topics: Collection[str] | None = ()

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == "consumer"

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def validate_offset_delete(self) -> None:
        if not self.is_empty and not self.uses_consumer_protocol:
            raise NonEmptyGroup


class SomeGroups:
    """The groups of a shard, and others that a test adds."""

    def __init__(self, groups: GroupMetadataManager) -> None:
        self._groups = groups
        self.special: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._groups, name)

    def group(self, group_id: str) -> Any:
        return self.special.get(group_id) or self._groups.group(group_id)


class Site:
    """Committed offsets whose records are replayed immediately, with consecutive offsets."""

    def __init__(self, **settings: Any) -> None:
        self.config = dataclasses.replace(BrokerConfig(), **settings)
        shard = GroupShard()
        self.clock = shard.ports.clock
        self.groups = SomeGroups(shard.groups)
        self.offsets = OffsetMetadataManager(
            self.groups, config=lambda: self.config, clock=self.clock
        )
        self.log_end = 0

    def apply(self, result: Result[Any]) -> Any:
        for record in result.records:
            self.replay(record.key, record.value)
        return result.response

    def replay(self, key: Any, value: Any, producer_id: int = -1) -> None:
        self.offsets.replay(key, value, offset=self.log_end, producer_id=producer_id)
        self.log_end += 1

    def commit(self, *offsets: OffsetToCommit, group: str = "g", **fields: Any) -> list[int]:
        fields.setdefault("version", 8)
        commit = OffsetCommit(group_id=group, offsets=offsets, **fields)
        errors: list[KafkaError | None] = self.apply(self.offsets.commit(commit))
        return [0 if error is None else int(error.code) for error in errors]

    def put(self, number: int, *, producer_id: int = -1, partition: int = 0) -> None:
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        self.replay(key, OffsetCommitValue(offset=number), producer_id)

    def fetch(self, topic: str = "t", partition: int = 0, *, stable: bool = False) -> FetchedOffset:
        asked = [(topic, [partition])]
        [(_, [fetched])] = self.offsets.fetch("g", asked, require_stable=stable)
        return fetched

    def fetch_all(self, group: str) -> Fetched:
        asked = self.offsets.committed_partitions(group)
        return self.offsets.fetch(group, asked, require_stable=False)

    def expire(self, group: str = "g") -> tuple[int, bool]:
        found = self.groups.group(group)
        assert found is not None
        records, is_all = self.offsets.expired(group, found, 100)
        self.apply(Result(records=records, response=None))
        return len(records), is_all


def at(offset: int, topic: str = "t", partition: int = 0, **fields: Any) -> OffsetToCommit:
    return OffsetToCommit(topic, partition, offset, **fields)


@pytest.fixture
def site() -> Site:
    return Site()


# -- commit and fetch --------------------------------------------------------------------------


def test_operation_changes_nothing_before_its_replay(site: Site) -> None:
    site.offsets.commit(OffsetCommit(group_id="g", offsets=[at(5)], version=8))
    assert site.fetch().offset == -1
    assert len(site.offsets) == 0
    assert site.groups.group("g") is None


def test_committed_offset_is_fetched_unchanged(site: Site) -> None:
    assert site.commit(at(5, leader_epoch=3, metadata="é🦆")) == [0]
    assert site.fetch() == FetchedOffset(0, 5, 3, "é🦆")


def test_unknown_group_topic_or_partition_has_no_offset(site: Site) -> None:
    assert site.fetch() == FetchedOffset(0, -1, -1, "")
    site.commit(at(5))
    assert site.fetch("u").offset == site.fetch("t", 1).offset == -1


def test_null_metadata_and_negative_epochs_are_normalized(site: Site) -> None:
    site.commit(at(5, metadata=None, leader_epoch=-7))
    assert site.fetch() == FetchedOffset(0, 5, -1, "")


def test_offset_may_be_committed_backwards(site: Site) -> None:
    site.commit(at(5))
    site.commit(at(3))
    assert site.fetch().offset == 3
    assert len(site.offsets) == 1


def test_all_committed_partitions_can_be_fetched(site: Site) -> None:
    site.commit(at(1), at(2, partition=1), at(3, "u"))
    site.commit(at(9, "v"), group="other")
    asked = site.offsets.committed_partitions("g")
    found = dict(site.offsets.fetch("g", asked, require_stable=True))
    assert {topic: [one.offset for one in rest] for topic, rest in found.items()} == {
        "t": [1, 2],
        "u": [3],
    }
    assert site.offsets.committed_partitions("missing") == []


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 10, 0),
        ("x" * 11, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("🦆" * 5, 0),  # Two UTF-16 code units each.
        ("🦆" * 5 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 10, 0),
    ],
)
def test_metadata_limit_counts_utf_16_code_units(metadata: str, code: int) -> None:
    site = Site(offset_metadata_max_bytes=10)
    assert site.commit(at(1, metadata=metadata), at(2, "u")) == [code, 0]
    assert site.fetch().offset == (-1 if code else 1)
    assert site.fetch("u").offset == 2


# -- permission to commit ------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "error"), [(8, IllegalGeneration), (9, GroupIdNotFound)])
def test_commit_with_a_generation_is_refused_without_a_group(
    site: Site, version: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        site.commit(at(1), generation_id=0, member_id="m", version=version)


def test_simple_group_accepts_commits_from_simple_consumers_only(site: Site) -> None:
    site.commit(at(1))
    site.commit(at(2), member_id="", generation_id=-1)
    with pytest.raises(UnknownMemberId):
        site.commit(at(3), member_id="m", generation_id=1)
    assert site.fetch().offset == 2


# -- delete ------------------------------------------------------------------------------------


def test_deleting_offsets_ignores_missing_ones(site: Site) -> None:
    site.commit(at(1), at(2, partition=1))
    result = site.offsets.delete("g", [("t", 0), ("u", 5)])
    assert len(result.records) == 1
    assert site.apply(result) == [None, None]
    assert (site.fetch().offset, site.fetch("t", 1).offset) == (-1, 2)


def test_offsets_of_a_missing_group_cannot_be_deleted(site: Site) -> None:
    with pytest.raises(GroupIdNotFound):
        site.offsets.delete("g", [("t", 0)])


def test_offsets_of_subscribed_topics_cannot_be_deleted(site: Site) -> None:
    site.commit(at(1), at(2, "u"))
    site.groups.special["g"] = FakeGroup(subscribed_topics={"t"})
    errors = site.apply(site.offsets.delete("g", [("t", 0), ("u", 0)]))
    assert [error and error.code for error in errors] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, None]
    assert (site.fetch().offset, site.fetch("u").offset) == (1, -1)


def test_offsets_of_active_groups_of_other_types_cannot_be_deleted(site: Site) -> None:
    site.commit(at(1))
    site.groups.special["g"] = FakeGroup(protocol_type="connect", subscribed_topics=None)
    with pytest.raises(NonEmptyGroup):
        site.offsets.delete("g", [("t", 0)])


def test_deleting_a_topic_deletes_its_offsets_in_all_groups(site: Site) -> None:
    for group in ("g", "h"):
        site.commit(at(1), at(2, partition=1), at(3, "u"), group=group)
    assert site.offsets.topic_deleted("t", site.log_end) == ["g", "h"]
    for group in ("g", "h"):
        records = list(site.offsets.tombstones_of_topic("t", group, site.log_end))
        assert len(records) == 2
        site.apply(Result(records=records, response=None))
    assert len(site.offsets) == 2
    assert site.fetch("u").offset == 3


def test_offsets_of_a_deleted_topic_are_hidden_during_their_deletion(site: Site) -> None:
    site.commit(at(1), at(2, partition=1), at(3, "u"))
    deleted_at = site.log_end
    site.offsets.topic_deleted("t", deleted_at)
    assert site.fetch().offset == -1
    assert [topic for topic, _ in site.offsets.committed_partitions("g")] == ["u"]
    site.commit(at(7))  # The topic was recreated.
    assert (site.fetch().offset, site.fetch("t", 1).offset) == (7, -1)
    [left] = site.offsets.tombstones_of_topic("t", "g", deleted_at)
    assert left.key.partition == 1
    site.apply(Result(records=[left], response=None))
    site.offsets.topic_offsets_deleted("t", deleted_at)
    assert (site.fetch().offset, site.fetch("t", 1).offset) == (7, -1)


def test_topic_deleted_twice_is_hidden_until_both_deletions_end(site: Site) -> None:
    site.commit(at(1))
    first_end = site.log_end
    site.offsets.topic_deleted("t", first_end)
    site.commit(at(2))
    site.offsets.topic_deleted("t", site.log_end)
    site.offsets.topic_offsets_deleted("t", first_end)
    assert site.fetch().offset == -1


def test_deleting_a_group_deletes_its_offsets(site: Site) -> None:
    site.commit(at(1), at(2, "u"))
    site.commit(at(3), group="h")
    site.apply(Result(records=list(site.offsets.tombstones_of("g")), response=None))
    assert list(site.offsets.group_ids()) == ["h"]


# -- transactions started by another broker ------------------------------------------------------


def test_transactional_offset_applies_when_committed(site: Site) -> None:
    site.put(1)
    site.put(2, producer_id=7)
    assert site.fetch().offset == 1
    assert isinstance(site.fetch(stable=True).error, UnstableOffsetCommit)
    assert site.fetch(stable=True).offset == -1
    site.offsets.replay_end_marker(7, committed=True)
    assert site.fetch(stable=True) == FetchedOffset(0, 2)


def test_transactional_offset_is_discarded_when_aborted(site: Site) -> None:
    site.put(2, producer_id=7)
    site.offsets.replay_end_marker(7, committed=False)
    site.offsets.replay_end_marker(7, committed=True)
    site.offsets.replay_end_marker(8, committed=True)
    assert site.fetch(stable=True).offset == -1
    assert len(site.offsets) == 0


def test_later_commit_outside_of_a_transaction_takes_precedence(site: Site) -> None:
    site.put(2, producer_id=7)
    site.put(3)
    site.offsets.replay_end_marker(7, committed=True)
    assert site.fetch().offset == 3


def test_tombstone_removes_pending_offsets(site: Site) -> None:
    site.put(2, producer_id=7)
    site.apply(Result(records=list(site.offsets.tombstones_of("g")), response=None))
    site.offsets.replay_end_marker(7, committed=True)
    assert site.fetch().offset == -1


# -- random histories --------------------------------------------------------------------------

KEYS = [(group, topic, number) for group in "gh" for topic in "tu" for number in range(2)]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 99)))))
def test_last_record_of_each_key_applies_after_random_history(
    history: list[tuple[tuple[str, str, int], int | None]],
) -> None:
    site = Site()
    last: dict[tuple[str, str, int], int] = {}
    for (group, topic, partition), number in history:
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        site.replay(key, None if number is None else OffsetCommitValue(offset=number))
        if number is None:
            last.pop((group, topic, partition), None)
        else:
            last[group, topic, partition] = number
    assert len(site.offsets) == len(last)
    assert set(site.offsets.group_ids()) == {group for group, _, _ in last}
    found = {
        (group, topic, one.partition): one.offset
        for group in "gh"
        for topic, rest in site.fetch_all(group)
        for one in rest
    }
    assert found == last
