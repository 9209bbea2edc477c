"""Random faults: no acknowledged write is lost, and no fenced write is applied."""

from __future__ import annotations

import json
import random

from plog.zookeeper.operations import Delete
from plogd.metadata.store import (
    ABSENT,
    Change,
    Fenced,
    Key,
    PartitionValue,
    Written,
)
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.metadata_sites import (
    ZooKeeperSite,
    controller_of_topic,
)

PARTITION: Key = ("partition", "t", 0)
CONFIG: Key = ("config", "topic", "t")


def test_counter_of_two_brokers_survives_random_faults() -> None:
    """Both add to a counter with compare-and-set, so each acknowledged addition counts once."""
    for seed in range(8):
        chance = random.Random(seed)
        first = ZooKeeperSite(1)
        sites = [first, ZooKeeperSite(2, first)]
        faults = [Fault.NONE] * 10 + [Fault.LOSE_BEFORE, Fault.LOSE_AFTER]

        def decide(
            client: MockZooKeeperClient,
            request: Request,
            chance: random.Random = chance,
            faults: list[Fault] = faults,
        ) -> Fault:
            if chance.random() < 0.02:
                client.hold()
            if chance.random() < 0.02:
                client.catch_up()
            return chance.choice(faults)

        first.zookeeper.on_request = decide
        acknowledged = attempts = 0
        for _ in range(30):
            work = []
            for site in sites:
                value, version = site.store.get(CONFIG)
                number = 0 if value is None else int(value["a"])
                # A mark of its own, so that no value of one broker looks like that of another.
                new = {"a": str(number + 1), "by": f"{site.broker_id}-{attempts}"}
                attempts += 1
                work.append(site.store.write([Change(key=CONFIG, value=new, expected=version)]))
                if chance.random() < 0.1:
                    site.zookeeper.expire(site.client.session_id)
            acknowledged += sum(
                isinstance(site.settle(one)[0], Written)
                for site, one in zip(sites, work, strict=True)
            )
        data = json.loads(first.zookeeper.data("/config/topics/t") or b"")
        # An addition to which the other broker has added before the outcome was known is reported
        # as a conflict, so the counter can be larger.
        assert acknowledged <= int(data["config"]["a"]) <= attempts, seed
        assert acknowledged >= 15, seed
        first.zookeeper.on_request = lambda *_: Fault.NONE
        for site in sites:
            site.client.catch_up()
            site.run_for(1000)
            assert site.store.get(CONFIG)[0] == data["config"], seed


def test_controller_state_survives_random_faults() -> None:
    """Two brokers write through lost connections, late watches and elections; no write is lost.

    The model is the list of acknowledged epochs: the state must be the last one, or one whose
    outcome was not known.
    """
    for seed in range(8):
        chance = random.Random(seed)
        first = ZooKeeperSite(1)
        sites = [first, ZooKeeperSite(2, first)]
        faults = [Fault.NONE] * 20 + [Fault.LOSE_BEFORE, Fault.LOSE_AFTER]

        def decide(
            client: MockZooKeeperClient,
            request: Request,
            chance: random.Random = chance,
            faults: list[Fault] = faults,
        ) -> Fault:
            if chance.random() < 0.01:
                client.hold()
            if chance.random() < 0.05:
                client.catch_up()
            return chance.choice(faults)

        term = controller_of_topic(first)
        first.zookeeper.on_request = decide
        leader, acknowledged = first, 0
        for _ in range(40):
            if chance.random() < 0.1:
                leader.zookeeper.expire(leader.client.session_id)
            if chance.random() < 0.1:
                leader = chance.choice(sites)
                first.zookeeper.write(*(
                    [Delete(path="/controller")]
                    if first.zookeeper.stat("/controller") is not None
                    else []
                ))  # fmt: skip
                term = leader.settle(leader.store.campaign())
            value, version = leader.store.get(PARTITION)
            if version == ABSENT:
                term = leader.settle(leader.store.campaign())
                value, version = leader.store.get(PARTITION)
            assert value.leader_epoch == acknowledged, seed
            new = PartitionValue(
                leader=1,
                leader_epoch=value.leader_epoch + 1,
                isr=(1,),
                partition_epoch=version + 1,
            )
            change = Change(key=PARTITION, value=new, expected=version)
            [one] = leader.settle(leader.store.write([change], term))
            if isinstance(one, Written):
                acknowledged += 1
            else:
                # Nothing was applied.
                assert one == Fenced(), seed
                term = leader.settle(leader.store.campaign())
