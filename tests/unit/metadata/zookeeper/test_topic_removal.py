"""A removal takes several transactions, and can be interrupted between any two."""

from __future__ import annotations

import pytest

from plogd.metadata.store import (
    ABSENT,
    Change,
    Key,
    Written,
)
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.metadata_sites import (
    SESSION_TIMEOUT_MS,
    ZooKeeperSite,
    config_change,
    topic_changes,
)
from tests.helpers.sim.sim_ports import outcome

TOPIC: Key = ("topic", "t")


class TestRemoval:
    """A removal takes several transactions, and can be interrupted between any two."""

    @pytest.mark.parametrize("partitions", [1, 30, 70])
    def test_next_controller_completes_a_removal(self, partitions: int) -> None:
        for kill_at in range(1, 12):
            first = ZooKeeperSite(1)
            second = ZooKeeperSite(2, first)
            term = first.settle(first.store.campaign())
            first.settle(
                first.store.write(
                    [*topic_changes("t", partitions=partitions), config_change("1")], term
                )
            )
            mark = Change(key=("delete_topic", "t"), value=True, expected=ABSENT)
            first.settle(first.store.write([mark], term))
            removal = Change(key=TOPIC, value=None, expected=first.store.get(TOPIC)[1])
            count = 0

            def kill(client: MockZooKeeperClient, request: Request) -> Fault:
                nonlocal count
                if client is first.client and request.kind == "multi":  # noqa: B023
                    count += 1
                    if count == kill_at:  # noqa: B023
                        first.client.kill()  # noqa: B023
                return Fault.NONE

            first.zookeeper.on_request = kill
            work = first.store.write([removal], term)
            campaign = second.store.campaign()
            first.run_for(3 * SESSION_TIMEOUT_MS)
            if work.done:
                assert outcome(work) == [Written(version=ABSENT)]
                first.client.close()
            term = second.settle(campaign)
            assert second.store.get(("delete_topic", "t"))[0] is (None if work.done else True)
            if not work.done:
                version = second.store.get(TOPIC)[1]
                rest = Change(key=TOPIC, value=None, expected=version)
                assert second.settle(second.store.write([rest], term)) == [Written(version=ABSENT)]
            for folder in ("/brokers/topics", "/config/topics"):
                assert second.zookeeper.names(folder) == []
            if work.done:
                return
        raise AssertionError("the removal takes more transactions than expected")

    def test_topic_that_another_controller_deleted_gets_settings_when_it_is_recreated(self) -> None:
        """Kafka's topics always have a znode for settings, and a deletion does not notify of it."""
        first = ZooKeeperSite(1)
        term = first.settle(first.store.campaign())
        first.settle(first.store.write_atomic(topic_changes("t"), term))
        second = ZooKeeperSite(2, first)
        first.client.close()
        term = second.settle(second.store.campaign())
        third = ZooKeeperSite(3, second)
        removal = Change(key=TOPIC, value=None, expected=second.store.get(TOPIC)[1])
        second.settle(second.store.write([removal], term))
        second.client.close()
        term = third.settle(third.store.campaign())
        third.settle(third.store.write_atomic(topic_changes("t"), term))
        assert third.zookeeper.data("/config/topics/t") == b'{"version":1,"config":{}}'
