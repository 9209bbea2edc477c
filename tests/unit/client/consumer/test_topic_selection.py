"""The topics that a subscription selects."""

from __future__ import annotations

import re
from types import MappingProxyType

import pytest

from plog.client.consumer.topic_selection import TopicSelection
from plog.client.network.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata

ONE = (PartitionMetadata(index=0),)
METADATA = ClusterMetadata(
    topics=MappingProxyType(
        {
            topic.name: topic
            for topic in (
                TopicMetadata(name="log-a", partitions=ONE),
                TopicMetadata(name="log-b"),
                TopicMetadata(name="a-log-a", partitions=ONE),
                TopicMetadata(name="log-offsets", partitions=ONE, is_internal=True),
            )
        }
    )
)


def test_names_are_selected_whether_or_not_they_exist() -> None:
    selection = TopicSelection.of(["log-b", "x"], None, excludes_internal=True)
    assert selection.wanted(METADATA) == {"log-b", "x"}
    assert selection.covers("x")
    assert not selection.covers("log-a")


@pytest.mark.parametrize("pattern", ["log-.*", re.compile("log-.+"), "^log-.*$"])
def test_pattern_matches_full_names_of_existing_topics(pattern: str | re.Pattern[str]) -> None:
    selection = TopicSelection.of(None, pattern, excludes_internal=True)
    assert selection.wanted(METADATA) == {"log-a"}
    assert selection.covers("log-new")
    assert not selection.covers("a-log-a")


def test_internal_topics_are_selected_when_not_excluded() -> None:
    selection = TopicSelection.of(None, "log-.*", excludes_internal=False)
    assert selection.wanted(METADATA) == {"log-a", "log-offsets"}


def test_invalid_subscription_is_refused() -> None:
    with pytest.raises(ValueError, match="either topics or a pattern"):
        TopicSelection.of(["a"], "b", excludes_internal=True)
    with pytest.raises(ValueError, match="either topics or a pattern"):
        TopicSelection.of(None, None, excludes_internal=True)
    with pytest.raises(TypeError, match=r"pass \['a'\], not 'a'"):
        TopicSelection.of("a", None, excludes_internal=True)
    with pytest.raises(TypeError, match="is not a topic name"):
        TopicSelection.of(["a", 3], None, excludes_internal=True)  # type: ignore[list-item]
