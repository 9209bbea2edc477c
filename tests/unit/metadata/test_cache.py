"""The cluster's topics and brokers as clients see them."""

from __future__ import annotations

from plogd.metadata.cache import LiveBroker, MetadataCache, TopicState
from plogd.metadata.store import BrokerRegistration, Endpoint


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


def endpoint(name: str, host: str) -> Endpoint:
    return Endpoint(name=name, host=host, port=9092, security_protocol="PLAINTEXT")


def broker(broker_id: int, *names: str) -> LiveBroker:
    endpoints = {name: endpoint(name, f"host{broker_id}") for name in names}
    return LiveBroker(broker_id=broker_id, endpoints=endpoints)


def test_no_broker_or_controller_is_known_at_first() -> None:
    cache = MetadataCache()
    assert (cache.live_brokers, cache.controller_id, cache.brokers_with("A")) == ({}, -1, set())


def test_live_brokers_are_replaced_as_a_whole() -> None:
    cache = MetadataCache()
    cache.update_brokers([broker(2, "A"), broker(1, "A", "B")], controller_id=2)
    before = cache.live_brokers
    assert (list(before), cache.controller_id) == ([1, 2], 2)
    assert cache.live_broker_ids == {1, 2}
    assert (cache.brokers_with("A"), cache.brokers_with("B")) == ({1, 2}, {1})
    version = cache.version
    cache.update_brokers([broker(3, "B")], controller_id=3)
    assert (list(cache.live_brokers), cache.controller_id) == ([3], 3)
    assert cache.live_broker_ids == {3}
    assert (cache.brokers_with("A"), cache.brokers_with("B")) == (set(), {3})
    assert cache.version > version
    assert list(before) == [1, 2]


def test_broker_has_the_first_endpoint_of_each_listener_name() -> None:
    registration = BrokerRegistration(
        broker_id=4,
        incarnation_id=b"i" * 16,
        endpoints=(endpoint("A", "192.0.2.1"), endpoint("A", "2001:db8::1"), endpoint("B", "b")),
        rack="r",
    )
    live = LiveBroker.of(registration)
    assert (live.broker_id, live.rack) == (4, "r")
    assert {name: each.host for name, each in live.endpoints.items()} == {
        "A": "192.0.2.1",
        "B": "b",
    }
