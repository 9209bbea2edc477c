"""Changes of keys that any broker may write, on each store and with conflicts between brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.errors import (
    InvalidRequest,
    KafkaStorageError,
    PolicyViolation,
    ResourceNotFound,
)
from plogd.controller.acls import Acls
from plogd.controller.batched_writes import MAX_CHANGES, Update, write_in_batches
from plogd.controller.client_quotas import Alteration, ClientQuotas
from plogd.controller.scram_users import Deletion, ScramUsers, Upsertion
from plogd.fair_queue import FairQueue
from plogd.metadata.store import ABSENT, Change, Conflict, Key, Outcome, Written
from plogd.ports import Later, ready, spawn
from plogd.quota import QuotaEntity, quota_key
from plogd.security.acl import Acl, AclFilter, ResourcePattern
from tests.helpers.metadata_sites import EmbeddedSite, Site, ZooKeeperSite
from tests.helpers.sim.sim_ports import SimPorts, outcome

KEY: Key = ("config", "topic", "t")
USER = QuotaEntity(user="alice")


@pytest.fixture(params=[EmbeddedSite, ZooKeeperSite])
def site(request: pytest.FixtureRequest) -> Site:
    made: Site = request.param()
    return made


def queue(site: Site) -> FairQueue:
    return FairQueue(site.ports.timers)


def two_brokers() -> tuple[ZooKeeperSite, ZooKeeperSite]:
    first = ZooKeeperSite(1)
    return first, ZooKeeperSite(2, first)


def acl(number: int, name: str = "clicks") -> Acl:
    return Acl(
        pattern=ResourcePattern(
            resource_type=AclResourceType.TOPIC,
            name=name,
            pattern_type=AclPatternType.LITERAL,
        ),
        principal=f"User:u{number}",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )


def upsertion(user: str) -> Upsertion:
    return Upsertion(user=user, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32)


class ContendedStore:
    """A store in which another broker adds one to a counter before each of `count` writes."""

    max_atomic_changes = 64

    def __init__(self, count: int) -> None:
        self.count = count
        self.values: dict[Key, tuple[Any, int]] = {KEY: ({"n": 0}, 1)}
        self.sizes: list[int] = []

    def get(self, key: Key) -> tuple[Any, int]:
        return self.values.get(key, (None, ABSENT))

    def write_atomic(self, changes: Sequence[Change]) -> Later[list[Outcome]]:
        self.sizes.append(len(changes))
        if self.count:
            self.count -= 1
            value, version = self.get(KEY)
            self.values[KEY] = ({"n": value["n"] + 1}, version + 1)
        found = [self.get(change.key) for change in changes]
        if any(found[i][1] != change.expected for i, change in enumerate(changes)):
            return ready([Conflict(value=value, version=version) for value, version in found])
        for change in changes:
            self.values[change.key] = (change.value, change.expected + 1)
        return ready([Written(version=change.expected + 1) for change in changes])


def write(store: ContendedStore, updates: list[Update]) -> list[object]:
    ports = SimPorts()
    fair_queue = FairQueue(ports.timers)
    # It has only what is called.
    work = spawn(write_in_batches(store, updates, "keys", fair_queue))  # type: ignore[arg-type]
    ports.settle()
    return list(outcome(work))


def add(amount: int) -> Callable[[Any], Any]:
    return lambda old: {"n": old["n"] + amount}


class TestConflicts:
    """Another broker changes the same key between the read and the write."""

    def test_new_value_is_computed_from_the_value_of_the_other_broker(self) -> None:
        store = ContendedStore(9)
        assert write(store, [Update(key=KEY, new_value=add(100))]) == [None]
        assert store.get(KEY)[0] == {"n": 109}

    def test_request_fails_after_ten_conflicts(self) -> None:
        store = ContendedStore(10)
        with pytest.raises(KafkaStorageError, match="changed them 10 times at the same time"):
            write(store, [Update(key=KEY, new_value=add(100))])
        assert store.get(KEY)[0] == {"n": 10}

    def test_update_without_effect_is_not_written(self) -> None:
        store = ContendedStore(0)
        missing: Key = ("config", "topic", "u")
        updates = [
            Update(key=KEY, new_value=lambda old: dict(old)),
            Update(key=missing, new_value=lambda old: None),
        ]
        assert write(store, updates) == [None, None]
        assert store.sizes == []

    def test_writes_have_at_most_as_many_changes_as_the_store_accepts(self) -> None:
        store = ContendedStore(0)
        keys: list[Key] = [("config", "topic", f"t{n}") for n in range(150)]
        updates = [Update(key=key, new_value=lambda _: {"a": "b"}) for key in keys]
        assert write(store, updates) == [None] * 150
        assert store.sizes == [64, 64, 22]

    def test_too_many_updates_change_nothing(self) -> None:
        store = ContendedStore(0)
        update = Update(key=KEY, new_value=add(1))
        with pytest.raises(PolicyViolation, match=f"at most {MAX_CHANGES} keys"):
            write(store, [update] * (MAX_CHANGES + 1))
        assert store.sizes == []


class TestEachStore:
    """Requests with more changes than a transaction of ZooKeeper has."""

    def test_hundreds_of_acls_are_created_and_deleted(self, site: Site) -> None:
        acls = Acls(site.store, fair_queue=queue(site))
        rules = [acl(n, f"topic{n % 3}") for n in range(300)]
        assert site.settle(acls.create(rules)) == [None] * 300
        assert acls.count == 300
        assert site.settle(acls.create(rules)) == [None] * 300
        any_acl = AclFilter(
            resource_type=AclResourceType.ANY,
            name=None,
            pattern_type=AclPatternType.ANY,
            principal=None,
            host=None,
            operation=AclOperation.ANY,
            permission=AclPermission.ANY,
        )
        [deleted] = site.settle(acls.delete([any_acl]))
        assert isinstance(deleted, list)
        assert set(deleted) == set(rules)
        assert acls.count == 0

    def test_hundreds_of_users_get_credentials(self, site: Site) -> None:
        users = ScramUsers(site.store, queue(site))
        names = [f"user{n}" for n in range(100)]
        result = site.settle(users.alter([], [upsertion(name) for name in names]))
        assert result == dict.fromkeys(names)
        deletions = [Deletion(user=name, mechanism=1) for name in [*names, "unknown"]]
        result = site.settle(users.alter(deletions, []))
        assert [name for name, error in result.items() if error is not None] == ["unknown"]
        assert isinstance(result["unknown"], ResourceNotFound)
        assert users.count == 0


class TestTwoBrokers:
    """Concurrent requests to two brokers of a cluster."""

    def test_quotas_set_by_two_brokers_are_both_kept(self) -> None:
        first, second = two_brokers()
        names = ("producer_byte_rate", "consumer_byte_rate")
        work = [
            ClientQuotas(site.store, queue(site)).alter(
                [Alteration(entity=[("user", "alice")], ops=[(name, 5.0)])], validate_only=False
            )
            for site, name in zip((first, second), names, strict=True)
        ]
        assert [first.settle(one) for one in work] == [[None], [None]]
        first.run_for(100)
        for site in (first, second):
            assert site.store.get(quota_key(USER))[0] == dict.fromkeys(names, 5.0)

    def test_acls_created_by_two_brokers_exist_once(self) -> None:
        first, second = two_brokers()
        work = [
            Acls(site.store, fair_queue=queue(site)).create([acl(n) for n in numbers])
            for site, numbers in ((first, range(100)), (second, range(50, 150)))
        ]
        assert [first.settle(one) for one in work] == [[None] * 100] * 2
        first.run_for(100)
        for site in (first, second):
            assert len(site.store.load(("acl",))) == 150

    def test_credential_is_deleted_by_one_of_two_brokers(self) -> None:
        first, second = two_brokers()
        users = [ScramUsers(site.store, queue(site)) for site in (first, second)]
        first.settle(users[0].alter([], [upsertion("alice")]))
        first.run_for(100)
        assert users[1].count == 1
        work = [one.alter([Deletion(user="alice", mechanism=1)], []) for one in users]
        results = [first.settle(one)["alice"] for one in work]
        assert results[0] is None
        assert isinstance(results[1], ResourceNotFound)

    def test_acl_that_zookeeper_cannot_store_is_rejected(self) -> None:
        site = ZooKeeperSite()
        rule = acl(1, "a/b")
        with pytest.raises(InvalidRequest, match="ZooKeeper cannot store ACLs"):
            site.settle(Acls(site.store, fair_queue=queue(site)).create([rule]))
