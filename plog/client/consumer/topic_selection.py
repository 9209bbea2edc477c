"""What an application has subscribed to: topics by name, or all whose name matches a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from plog.client.errors import error_about
from plog.client.network.metadata import ClusterMetadata
from plog.errors import ErrorCode, KafkaError

_REFUSALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Exactly one of the two is given; the pattern has to match a topic's whole name."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    excludes_internal: bool = True

    @classmethod
    def of(
        cls,
        topics: Iterable[str] | None,
        pattern: str | re.Pattern[str] | None,
        *,
        excludes_internal: bool,
    ) -> TopicSelection:
        """Raises ValueError for both or neither, TypeError for what is no collection of names."""
        if (topics is None) == (pattern is None):
            raise ValueError("subscribe to topics, or to a pattern: one of the two")
        if pattern is not None:
            return cls(pattern=re.compile(pattern), excludes_internal=excludes_internal)
        if isinstance(topics, str | bytes):
            raise TypeError(f"topics is a list of names: [{topics!r}] instead of {topics!r}")
        assert topics is not None
        names = tuple(topics)
        for name in names:
            if not isinstance(name, str) or not name:
                raise TypeError(f"{name!r} is not the name of a topic")
        return cls(topics=frozenset(names))

    def wanted(self, metadata: ClusterMetadata) -> frozenset[str]:
        """The topics it means now."""
        if self.pattern is None:
            return self.topics
        return frozenset(
            name
            for name, topic in metadata.topics.items()
            if topic.partitions
            and not (topic.is_internal and self.excludes_internal)
            and self.pattern.fullmatch(name)
        )

    def covers(self, topic: str) -> bool:
        """Whether a topic is meant, even one that is not known yet."""
        if self.pattern is None:
            return topic in self.topics
        return self.pattern.fullmatch(topic) is not None


def refusal(topics: Iterable[str], metadata: ClusterMetadata) -> KafkaError | None:
    """Why one of these topics is not to be had, if waiting for it would be in vain."""
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is not None and topic.error in _REFUSALS:
            return error_about(topic.error, f"topic {name} cannot be subscribed to")
    return None
