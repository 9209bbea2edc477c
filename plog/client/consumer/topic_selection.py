"""The topics of a subscription: a list of names, or a pattern."""

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
    """The topics of a subscription, given as either `topics` or `pattern`.

    A pattern must match a topic's full name.
    """

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
        """Return the selection for the arguments of `subscribe`.

        Raises ValueError unless exactly one of `topics` and `pattern` is given, and TypeError for
        an invalid list of names.
        """
        if (topics is None) == (pattern is None):
            raise ValueError("cannot subscribe: pass either topics or a pattern")
        if pattern is not None:
            return cls(pattern=re.compile(pattern), excludes_internal=excludes_internal)
        # A string is iterable, so without this check, its letters would become topics.
        if isinstance(topics, str | bytes):
            raise TypeError(f"topics must be a list of names: pass [{topics!r}], not {topics!r}")
        assert topics is not None
        names = tuple(topics)
        for name in names:
            if not isinstance(name, str) or not name:
                raise TypeError(f"{name!r} is not a topic name")
        return cls(topics=frozenset(names))

    def wanted(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the topics that the selection currently contains."""
        if self.pattern is None:
            return self.topics
        return frozenset(
            name
            for name, topic in metadata.topics.items()
            if topic.partitions
            and not (topic.is_internal and self.excludes_internal)
            # As with Java's Pattern.matches, a matching prefix is not enough.
            and self.pattern.fullmatch(name)
        )

    def covers(self, topic: str) -> bool:
        """Return whether the selection includes a topic, even one that does not exist yet."""
        if self.pattern is None:
            return topic in self.topics
        return self.pattern.fullmatch(topic) is not None


def refusal(topics: Iterable[str], metadata: ClusterMetadata) -> KafkaError | None:
    """Return the error if a topic can never be read, such as a missing permission, or None."""
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is not None and topic.error in _REFUSALS:
            return error_about(topic.error, f"cannot subscribe to topic {name}")
    return None
