"""The cluster's topics as clients see them."""

from __future__ import annotations

from plogd.metadata.cache import MetadataCache, TopicState


def topic(name: str, topic_id: bytes = b"a" * 16) -> TopicState:
    return TopicState(name=name, topic_id=topic_id, partitions=())


def test_topic_is_found_by_name_and_by_id() -> None:
    cache = MetadataCache()
    cache.update(topic("t"))
    assert cache.topic("t") == topic("t")
    assert cache.topic_name(b"a" * 16) == "t"


def test_update_replaces_the_id() -> None:
    cache = MetadataCache()
    cache.update(topic("t"))
    cache.update(topic("t", b"b" * 16))
    assert (cache.topic_name(b"a" * 16), cache.topic_name(b"b" * 16)) == (None, "t")


def test_removed_topic_is_not_found_by_name_or_id() -> None:
    cache = MetadataCache()
    cache.update(topic("t"))
    cache.remove("t")
    assert (cache.topic("t"), cache.topic_name(b"a" * 16), cache.topic_count) == (None, None, 0)


def test_topics_are_sorted_by_name() -> None:
    cache = MetadataCache()
    for name in ("b", "a", "c"):
        cache.update(topic(name, name.encode() * 16))
    assert [one.name for one in cache.topics()] == ["a", "b", "c"]


def test_only_the_coordinators_topics_are_internal() -> None:
    assert topic("__consumer_offsets").is_internal
    assert not topic("__mine").is_internal
