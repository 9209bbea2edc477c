"""Znodes that several brokers, tools and Kafka change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plog.zookeeper.operations import Create, SetData
from plogd.metadata.store import (
    ABSENT,
    Change,
    Key,
    Written,
)
from plogd.metadata.zookeeper.paths import PERSISTENT_PATHS
from plogd.quota import QuotaEntity, quota_key
from plogd.security.scram import ScramCredential
from tests.helpers.metadata_sites import (
    ZooKeeperSite,
    config_change,
    controller_of_topic,
    election_change,
    topic_changes,
    topic_value,
)

TOPIC: Key = ("topic", "t")
PARTITION: Key = ("partition", "t", 0)
CONFIG: Key = ("config", "topic", "t")


class TestSharedZnodes:
    """Znodes that several brokers, tools and Kafka change."""

    def test_unknown_fields_are_kept(self) -> None:
        site = ZooKeeperSite()
        term = controller_of_topic(site)
        for path in ("/brokers/topics/t", "/brokers/topics/t/partitions/0/state"):
            data = json.loads(site.zookeeper.data(path) or b"")
            site.zookeeper.write(SetData(path=path, data=json.dumps({**data, "new": 1}).encode()))
        site.settle(site.store.refresh([TOPIC, PARTITION]))
        site.settle(site.store.write([election_change(site, 1)], term))
        change = Change(
            key=TOPIC, value=topic_value(partitions=2), expected=site.store.get(TOPIC)[1]
        )
        site.settle(site.store.write([change], term))
        for path in ("/brokers/topics/t", "/brokers/topics/t/partitions/0/state"):
            assert json.loads(site.zookeeper.data(path) or b"")["new"] == 1

    def test_unknown_settings_of_a_user_are_kept(self) -> None:
        site = ZooKeeperSite()
        data = b'{"version":1,"config":{"future":"x","producer_byte_rate":"5"}}'
        site.zookeeper.write(Create(path="/config/users/u", data=data))
        key = quota_key(QuotaEntity(user="u"))
        site.settle(site.store.refresh([key]))
        assert site.store.get(key)[0] == {"producer_byte_rate": 5.0}
        removal = Change(key=key, value=None, expected=site.store.get(key)[1])
        site.settle(site.store.write([removal]))
        data = site.zookeeper.data("/config/users/u") or b""
        assert json.loads(data)["config"] == {"future": "x"}

    def test_user_with_quotas_for_client_ids_is_kept(self) -> None:
        site = ZooKeeperSite()
        user = quota_key(QuotaEntity(user="u"))
        both = quota_key(QuotaEntity(user="u", client_id="c"))
        for key in (user, both):
            change = Change(key=key, value={"producer_byte_rate": 1.0}, expected=ABSENT)
            site.settle(site.store.write([change]))
        for key in (user, both):
            removal = Change(key=key, value=None, expected=site.store.get(key)[1])
            assert site.settle(site.store.write([removal])) == [Written(version=ABSENT)]
        assert site.zookeeper.names("/config/users") == []

    def test_client_ids_that_the_mirror_does_not_know_are_kept(self) -> None:
        site = ZooKeeperSite()
        both = quota_key(QuotaEntity(user="u", client_id="c"))
        change = Change(key=both, value={"producer_byte_rate": 1.0}, expected=ABSENT)
        site.settle(site.store.write([change]))
        site.zookeeper.write(Create(path="/config/users/u/clients/other"))
        removal = Change(key=both, value=None, expected=site.store.get(both)[1])
        assert site.settle(site.store.write([removal])) == [Written(version=ABSENT)]
        assert site.zookeeper.names("/config/users/u/clients") == ["other"]

    def test_change_of_another_key_in_the_znode_is_no_conflict(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        key = quota_key(QuotaEntity(user="u"))
        change = Change(key=key, value={"producer_byte_rate": 1.0}, expected=ABSENT)
        [written] = first.settle(first.store.write([change]))
        second.run_for(10)
        # Held, so that it does not notice what the other broker changes.
        first.client.hold()
        scram: Key = ("scram", "u", 1)
        credential = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"e", iterations=4096)
        second.settle(second.store.write([Change(key=scram, value=credential, expected=ABSENT)]))
        again = Change(key=key, value={"producer_byte_rate": 2.0}, expected=written.version)
        [one] = first.settle(first.store.write([again]))
        assert isinstance(one, Written)
        assert first.store.get(scram)[0] == credential

    def test_settings_reach_other_brokers_once(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        seen: list[tuple[int, Any]] = []
        for site in (first, second):
            number = site.broker_id
            site.store.watch(
                ("config",), lambda key, value, version, number=number: seen.append((number, value))
            )
        first.settle(first.store.write([config_change("1")]))
        first.run_for(10)
        assert sorted(seen, key=str) == [(1, {"a": "1"}), (2, {"a": "1"})]

    def test_damaged_notification_is_reported_and_skipped(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        for data in (b"", b"{", b'{"version":2,"entity_path":"../x"}', b'{"version":2}'):
            path = "/config/changes/config_change_"
            first.zookeeper.write(Create(path=path, data=data, sequential=True))
        first.zookeeper.write(Create(path="/config/changes/other"))
        first.settle(first.store.write([config_change("1")]))
        first.run_for(10)
        assert second.store.get(CONFIG)[0] == {"a": "1"}
        assert sum("cannot decode the notification" in x for x in second.ports.reports) == 4

    def test_old_notifications_are_deleted(self) -> None:
        site = ZooKeeperSite()
        site.settle(site.store.write([config_change("1")]))
        site.run_for(16 * 60 * 1000)
        [written] = site.settle(site.store.write([config_change("2", site.store.get(CONFIG)[1])]))
        site.run_for(10)
        assert isinstance(written, Written)
        assert site.zookeeper.names("/config/changes") == ["config_change_0000000001"]

    def test_znodes_of_the_start_are_those_of_kafka(self) -> None:
        site = ZooKeeperSite()
        assert all(site.zookeeper.stat(path) is not None for path in PERSISTENT_PATHS)

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"partitions":{}}', b"\xff", b"null"])
    def test_damaged_topic_cannot_be_written(self, data: bytes) -> None:
        site = ZooKeeperSite()
        controller_of_topic(site)
        site.zookeeper.write(SetData(path="/brokers/topics/t", data=data))
        site.restart()
        term = site.settle(site.store.campaign())
        assert list(site.store.damaged) == ["/brokers/topics/t"]
        change = Change(key=TOPIC, value=topic_value(), expected=ABSENT)
        with pytest.raises(KafkaStorageError, match=r"cannot decode the znode /brokers/topics/t:"):
            site.settle(site.store.write([change], term))
        other = site.store.write_atomic(topic_changes("u"), term)
        assert all(isinstance(one, Written) for one in site.settle(other))
