"""GroupProgress commits what a stream has processed, and never fails the stream."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from plog.errors import NonEmptyGroup, PlogError
from plog.spark.reader.group_progress import GroupProgress
from plog.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Commits:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[TopicPartition, int]]] = []
        self.error: PlogError | None = None

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.error is not None:
            raise self.error
        self.seen.append((group, dict(offsets)))


def test_only_changed_offsets_are_committed() -> None:
    commits = Commits()
    progress = GroupProgress(commits, "g")
    progress.report({A: 1, B: 2}, 0)
    progress.report({A: 1, B: 2}, 1000)
    progress.report({A: 5, B: 2}, 2000)
    assert commits.seen == [("g", {A: 1, B: 2}), ("g", {A: 5})]


def test_nothing_is_committed_without_a_group() -> None:
    commits = Commits()
    GroupProgress(commits, None).report({A: 1}, 0)
    assert commits.seen == []


def test_error_is_logged_once_and_the_offsets_are_committed_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits = Commits()
    commits.error = NonEmptyGroup("group g has members")
    progress = GroupProgress(commits, "g")
    with caplog.at_level(logging.WARNING):
        progress.report({A: 1}, 0)
        progress.report({A: 2}, 60_000)
    assert len(caplog.records) == 1
    assert "cannot commit the progress of the query to group g: group g has members" in caplog.text
    commits.error = None
    progress.report({A: 2}, 119_999)
    assert commits.seen == []
    progress.report({A: 2}, 120_000)
    assert commits.seen == [("g", {A: 2})]


def test_unchanged_offsets_are_committed_once_a_day() -> None:
    commits = Commits()
    progress = GroupProgress(commits, "g")
    for hour in range(49):
        progress.report({A: 1}, hour * 3_600_000)
    assert len(commits.seen) == 3
