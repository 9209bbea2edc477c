"""What every metadata store guarantees: the same tests for the embedded store and ZooKeeper's."""

from __future__ import annotations

from typing import Any

import pytest

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    Fenced,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
    Written,
)
from plogd.quota import QuotaEntity, quota_key
from plogd.security.acl import Acl, ResourcePattern, acl_key
from plogd.security.scram import ScramCredential
from tests.helpers.metadata_sites import (
    EmbeddedSite,
    Site,
    ZooKeeperSite,
    partition_value,
    registration,
    topic_changes,
    topic_value,
)
from tests.helpers.sim.sim_ports import outcome

PRODUCERS: Key = ("producer_ids",)
TOPIC: Key = ("topic", "t")
PARTITION: Key = ("partition", "t", 0)
CONFIG: Key = ("config", "topic", "t")
ALICE = "alice, the \u00e9ditor/<default>"


@pytest.fixture(params=[EmbeddedSite, ZooKeeperSite])
def site(request: pytest.FixtureRequest) -> Site:
    made: Site = request.param()
    return made


def producer_ids(next_id: int, expected: int) -> Change:
    # Brokers without an epoch: ZooKeeper does not store it.
    value = ProducerIdsValue(broker_id=1, broker_epoch=-1, next_producer_id=next_id)
    return Change(key=PRODUCERS, value=value, expected=expected)


def acl(name: str = "clicks", pattern_type: int = AclPatternType.LITERAL) -> Acl:
    return Acl(
        pattern=ResourcePattern(
            resource_type=AclResourceType.TOPIC, name=name, pattern_type=pattern_type
        ),
        principal="User:alice",
        host="*",
        operation=AclOperation.DESCRIBE_CONFIGS,
        permission=AclPermission.ALLOW,
    )


CREDENTIAL = ScramCredential(salt=b"s", stored_key=b"k" * 32, server_key=b"e" * 32, iterations=4096)

VALUES: list[tuple[Key, Any, Any]] = [
    (CONFIG, {"retention.ms": "1000"}, {"retention.ms": "2000", "a": "b"}),
    (("config", "broker", "1"), {"log.retention.ms": "1"}, {"log.retention.ms": "2"}),
    (("config", "broker", ""), {"log.retention.ms": "1"}, {"log.retention.ms": "2"}),
    (
        quota_key(QuotaEntity(user=ALICE)),
        {"producer_byte_rate": 1024.0},
        {"request_percentage": 12.5},
    ),
    (quota_key(QuotaEntity(user="")), {"consumer_byte_rate": 1.0}, {"consumer_byte_rate": 2.0}),
    (quota_key(QuotaEntity(client_id="c")), {"producer_byte_rate": 1.0}, {"x": 1.0}),
    (
        quota_key(QuotaEntity(user=ALICE, client_id="")),
        {"producer_byte_rate": 1.0},
        {"producer_byte_rate": 2.0},
    ),
    (
        quota_key(QuotaEntity(ip="::1")),
        {"connection_creation_rate": 1.0},
        {"connection_creation_rate": 2.0},
    ),
    (("scram", ALICE, 1), CREDENTIAL, ScramCredential(
        salt=b"other", stored_key=b"a" * 32, server_key=b"b" * 32, iterations=8192
    )),
]  # fmt: skip
VALUES[5] = (VALUES[5][0], {"producer_byte_rate": 1.0}, {"consumer_byte_rate": 1.0})
every_value = pytest.mark.parametrize(("key", "value", "other"), VALUES, ids=lambda x: str(x)[:30])


class TestValues:
    """Any broker may write these keys."""

    @every_value
    def test_key_is_created_changed_and_removed(
        self, site: Site, key: Key, value: Any, other: Any
    ) -> None:
        assert site.store.get(key) == (None, ABSENT)
        version = ABSENT
        for new in (value, other):
            [written] = site.settle(
                site.store.write([Change(key=key, value=new, expected=version)])
            )
            assert isinstance(written, Written)
            assert site.store.get(key) == (new, written.version)
            assert site.store.load(key) == {key: (new, written.version)}
            version = written.version
        removal = Change(key=key, value=None, expected=version)
        assert site.settle(site.store.write([removal])) == [Written(version=ABSENT)]
        assert site.store.get(key) == (None, ABSENT)
        assert site.store.load(key[:1]) == {}

    @every_value
    def test_value_survives_a_restart(self, site: Site, key: Key, value: Any, other: Any) -> None:
        site.settle(site.store.write([Change(key=key, value=value, expected=ABSENT)]))
        site.restart()
        assert site.store.get(key)[0] == value

    @pytest.mark.parametrize("pattern_type", [AclPatternType.LITERAL, AclPatternType.PREFIXED])
    def test_acl_is_created_and_removed(self, site: Site, pattern_type: int) -> None:
        rules = [acl("a", pattern_type), acl("b", pattern_type)]
        creation = [Change(key=acl_key(x), value=x, expected=ABSENT) for x in rules]
        site.settle(site.store.write_atomic(creation))
        found = site.store.load(("acl",))
        assert {key: value for key, (value, _) in found.items()} == {acl_key(x): x for x in rules}
        first = acl_key(rules[0])
        site.settle(site.store.write([Change(key=first, value=None, expected=found[first][1])]))
        site.restart()
        assert {value for value, _ in site.store.load(("acl",)).values()} == {rules[1]}

    def test_rules_of_one_resource_are_separate_keys(self, site: Site) -> None:
        rules = [acl(), Acl(**{**_fields(acl()), "principal": "User:bob"})]
        for rule in rules:
            [one] = site.settle(
                site.store.write([Change(key=acl_key(rule), value=rule, expected=ABSENT)])
            )
            assert isinstance(one, Written)
        _, version = site.store.get(acl_key(rules[0]))
        [one] = site.settle(
            site.store.write([Change(key=acl_key(rules[0]), value=None, expected=version)])
        )
        assert one == Written(version=ABSENT)
        assert site.store.get(acl_key(rules[1]))[0] == rules[1]

    def test_credentials_and_quotas_of_a_user_are_separate_keys(self, site: Site) -> None:
        quota = quota_key(QuotaEntity(user="bob"))
        keys: list[tuple[Key, Any]] = [
            (("scram", "bob", 1), CREDENTIAL),
            (("scram", "bob", 2), CREDENTIAL),
            (quota, {"producer_byte_rate": 1.0}),
            (quota_key(QuotaEntity(user="bob", client_id="c")), {"producer_byte_rate": 2.0}),
        ]
        for key, value in keys:
            site.settle(site.store.write([Change(key=key, value=value, expected=ABSENT)]))
        versions = {key: site.store.get(key)[1] for key, _ in keys}
        for key, value in keys:
            [one] = site.settle(
                site.store.write([Change(key=key, value=None, expected=versions[key])])
            )
            assert one == Written(version=ABSENT)
            site.settle(site.store.write([Change(key=key, value=value, expected=ABSENT)]))
        site.restart()
        assert [site.store.get(key)[0] for key, _ in keys] == [value for _, value in keys]


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class TestWriting:
    """Compare-and-set, one change or several."""

    def test_stale_version_is_a_conflict_with_the_current_value(self, site: Site) -> None:
        [written] = site.settle(site.store.write([producer_ids(1000, ABSENT)]))
        assert isinstance(written, Written)
        [conflict] = site.settle(site.store.write([producer_ids(5000, ABSENT)]))
        assert isinstance(conflict, Conflict)
        assert (conflict.value.next_producer_id, conflict.version) == (1000, written.version)
        assert site.store.get(PRODUCERS)[0].next_producer_id == 1000

    def test_missing_key_is_a_conflict_if_a_version_is_expected(self, site: Site) -> None:
        [conflict] = site.settle(site.store.write([producer_ids(5000, 7)]))
        assert conflict == Conflict(value=None, version=ABSENT)

    def test_second_of_two_queued_writes_with_the_same_version_conflicts(self, site: Site) -> None:
        writes = [site.store.write([producer_ids(n, ABSENT)]) for n in (1000, 2000)]
        outcomes = [site.settle(write)[0] for write in writes]
        assert [type(one) for one in outcomes] == [Written, Conflict]

    def test_changes_of_a_plain_write_are_independent(self, site: Site) -> None:
        site.settle(site.store.write([producer_ids(1000, ABSENT)]))
        config = Change(key=CONFIG, value={"a": "b"}, expected=ABSENT)
        outcomes = site.settle(site.store.write([producer_ids(2000, ABSENT), config]))
        assert [type(one) for one in outcomes] == [Conflict, Written]

    def test_atomic_write_makes_all_changes_or_none(self, site: Site) -> None:
        site.settle(site.store.write([producer_ids(1000, ABSENT)]))
        config = Change(key=CONFIG, value={"a": "b"}, expected=ABSENT)
        outcomes = site.settle(site.store.write_atomic([config, producer_ids(2000, ABSENT)]))
        assert [type(one) for one in outcomes] == [Conflict, Conflict]
        assert site.store.load(("config",)) == {}

    def test_removing_a_missing_key_is_written(self, site: Site) -> None:
        gone = Change(key=CONFIG, value=None, expected=ABSENT)
        assert site.settle(site.store.write([gone])) == [Written(version=ABSENT)]

    def test_write_without_changes_has_no_outcomes(self, site: Site) -> None:
        assert site.settle(site.store.write([])) == []

    def test_value_and_watchers_wait_for_the_outcome(self, site: Site) -> None:
        seen: list[Key] = []
        site.store.watch(PRODUCERS, lambda key, value, version: seen.append(key))
        write = site.store.write([producer_ids(1000, ABSENT)])
        assert (site.store.get(PRODUCERS), seen) == ((None, ABSENT), [])
        site.settle(write)
        assert seen == [PRODUCERS]

    def test_failing_watcher_does_not_affect_writes(self, site: Site) -> None:
        site.store.watch(PRODUCERS, lambda *_: 1 // 0)
        first, second = (site.store.write([producer_ids(n, ABSENT)]) for n in (1000, 2000))
        with pytest.raises(ZeroDivisionError):
            site.settle(first)
        assert isinstance(outcome(first)[0], Written)
        assert isinstance(site.settle(second)[0], Conflict)


class TestTopics:
    """Only the controller writes topics and partitions, with its term."""

    def test_topic_is_created_with_its_partitions(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        changes = [*topic_changes("t", partitions=3), config_change()]
        outcomes = site.settle(site.store.write_atomic(changes, term))
        assert all(isinstance(one, Written) for one in outcomes)
        site.restart()
        site.settle(site.store.campaign())
        assert site.store.get(TOPIC)[0] == topic_value(partitions=3)
        assert [site.store.get(("partition", "t", n))[0] for n in range(3)] == [
            partition_value()
        ] * 3
        assert site.store.get(CONFIG)[0] == {"a": "b"}

    def test_partition_is_elected_with_its_version(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t"), term))
        _, version = site.store.get(PARTITION)
        elected = partition_value(leader_epoch=1, partition_epoch=1)
        [first, *_] = site.settle(
            site.store.write([Change(key=PARTITION, value=elected, expected=version)], term)
        )
        assert isinstance(first, Written)
        assert site.store.get(PARTITION) == (elected, first.version)
        [again] = site.settle(
            site.store.write([Change(key=PARTITION, value=elected, expected=version)], term)
        )
        assert again == Conflict(value=elected, version=first.version)

    def test_partitions_are_added(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t"), term))
        added: Key = ("partition", "t", 1)
        changes = [
            Change(key=TOPIC, value=topic_value(partitions=2), expected=site.store.get(TOPIC)[1]),
            Change(key=added, value=partition_value(), expected=ABSENT),
        ]
        outcomes = site.settle(site.store.write_atomic(changes, term))
        assert all(isinstance(one, Written) for one in outcomes)
        assert site.store.get(added)[0] == partition_value()
        assert site.store.get(TOPIC)[0] == topic_value(partitions=2)

    def test_replicas_are_reassigned(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t", partitions=2), term))
        moving = TopicValue(
            topic_id=b"t" * 16,
            assignments={0: (2, 1), 1: (1,)},
            adding_replicas={0: (2,)},
            removing_replicas={0: (1,)},
        )
        moved = TopicValue(topic_id=b"t" * 16, assignments={0: (2,), 1: (1,)})
        for value in (moving, moved):
            change = Change(key=TOPIC, value=value, expected=site.store.get(TOPIC)[1])
            [one] = site.settle(site.store.write([change], term))
            assert isinstance(one, Written)
            site.restart()
            term = site.settle(site.store.campaign())
            assert site.store.get(TOPIC)[0] == value

    def test_removal_removes_partitions_settings_and_mark(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        mark: Key = ("delete_topic", "t")
        changes = [*topic_changes("t", partitions=5), config_change()]
        site.settle(site.store.write_atomic(changes, term))
        [marked] = site.settle(
            site.store.write([Change(key=mark, value=True, expected=ABSENT)], term)
        )
        assert isinstance(marked, Written)
        seen: list[Key] = []
        site.store.watch((), lambda key, value, version: seen.append(key))
        removal = Change(key=TOPIC, value=None, expected=site.store.get(TOPIC)[1])
        assert site.settle(site.store.write([removal], term)) == [Written(version=ABSENT)]
        partitions: list[Key] = [("partition", "t", n) for n in range(5)]
        assert {TOPIC, CONFIG, *partitions} == set(seen) - {mark}
        for again in range(2):
            for prefix in ("topic", "partition", "config", "delete_topic"):
                assert site.store.load((prefix,)) == {}, again
            site.restart()
            site.settle(site.store.campaign())

    def test_recreated_topic_is_another_topic(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t", b"1" * 16), term))
        _, version = site.store.get(TOPIC)
        site.settle(site.store.write([Change(key=TOPIC, value=None, expected=version)], term))
        site.settle(site.store.write_atomic(topic_changes("t", b"2" * 16), term))
        [stale] = site.settle(
            site.store.write([Change(key=TOPIC, value=None, expected=version)], term)
        )
        assert isinstance(stale, Conflict)
        assert site.store.get(TOPIC)[0].topic_id == b"2" * 16

    def test_partition_without_leader_is_stored(self, site: Site) -> None:
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t"), term))
        offline = PartitionValue(leader=-1, leader_epoch=1, isr=(1,), partition_epoch=1)
        change = Change(key=PARTITION, value=offline, expected=site.store.get(PARTITION)[1])
        site.settle(site.store.write([change], term))
        site.restart()
        site.settle(site.store.campaign())
        assert site.store.get(PARTITION)[0] == offline

    def test_terms_rise_with_every_start(self, site: Site) -> None:
        terms = []
        for _ in range(3):
            terms.append(site.settle(site.store.campaign()))
            site.settle(site.store.register_broker(registration()))
            site.restart()
        assert terms == sorted(set(terms))


def config_change() -> Change:
    return Change(key=CONFIG, value={"a": "b"}, expected=ABSENT)


class TestRegistration:
    """The broker's own registration."""

    def test_registration_is_stored_with_the_epoch(self, site: Site) -> None:
        epoch = site.settle(site.store.register_broker(registration()))
        site.settle(site.store.campaign())
        found, version = site.store.get(("broker", 1))
        assert found.endpoints == registration().endpoints
        assert (found.rack, found.broker_epoch, version) == ("r1", epoch, epoch)

    def test_later_start_has_a_larger_epoch(self, site: Site) -> None:
        epochs = []
        for _ in range(2):
            epochs.append(site.settle(site.store.register_broker(registration())))
            site.restart()
        assert epochs[0] < epochs[1]

    def test_lease_is_in_the_future(self, site: Site) -> None:
        site.settle(site.store.register_broker(registration()))
        assert site.store.lease_end_ms > site.ports.clock.monotonic_ms()

    def test_registered_broker_is_read_only(self, site: Site) -> None:
        change = Change(key=("broker", 2), value=registration(2), expected=ABSENT)
        with pytest.raises(ValueError, match="read-only"):
            site.settle(site.store.write([change]))


def test_fenced_is_an_outcome_of_its_own() -> None:
    assert Fenced() not in (Written(version=1), Conflict(value=None, version=1))
