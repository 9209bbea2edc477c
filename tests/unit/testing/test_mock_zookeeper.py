"""The in-memory ZooKeeper: the guarantees of a real one, and the faults that tests cause."""

from __future__ import annotations

from typing import Any

import pytest

from plog.zookeeper.operations import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    ZnodeStat,
)
from plogd.ports import Later
from plogd.testing.mock_zookeeper import Fault, MockZooKeeper, MockZooKeeperClient
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.sim_time import SimClock, SimTimers

TIMEOUT_MS = 6000


class Site:
    """An ensemble and its time."""

    def __init__(self) -> None:
        self.timers = SimTimers(SimClock())
        self.zookeeper = MockZooKeeper(self.timers.clock, self.timers)

    def connect(self) -> tuple[MockZooKeeperClient, list[SessionState]]:
        client = self.zookeeper.connect(session_timeout_ms=TIMEOUT_MS)
        states: list[SessionState] = []
        client.listen(states.append)
        self.run(1)
        return client, states

    def run(self, duration_ms: float) -> None:
        self.timers.advance(duration_ms)

    def settle(self, later: Later[Any]) -> Any:
        self.run(100)
        return outcome(later)


class TestTransactions:
    """All operations or none."""

    def test_results_are_those_of_zookeeper(self) -> None:
        site = Site()
        client, _ = site.connect()
        results = site.settle(
            client.multi(
                [
                    Create(path="/a", data=b"1"),
                    Create(path="/a/s-", sequential=True),
                    SetData(path="/a", data=b"2", version=0),
                    Check(path="/a", version=1),
                    Create(path="/a/s-", sequential=True),
                    Delete(path="/a/s-0000000000"),
                ]
            )
        )
        assert results[:2] == ["/a", "/a/s-0000000000"]
        assert (results[2].version, results[2].czxid, results[2].mzxid) == (1, 1, 1)
        assert results[3:] == [None, "/a/s-0000000001", None]
        assert site.settle(client.children("/a")) == ["s-0000000001"]
        # Numbers are not used again.
        again = site.settle(client.multi([Create(path="/a/s-", sequential=True)]))
        assert again == ["/a/s-0000000003"]

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (Create(path="/x/y"), NoNode),
            (Create(path="/a"), NodeExists),
            (SetData(path="/x", data=b""), NoNode),
            (SetData(path="/a", data=b"", version=5), BadVersion),
            (Delete(path="/a"), NotEmpty),
            (Delete(path="/a/b", version=3), BadVersion),
            (Check(path="/a", version=1), BadVersion),
            (Check(path="/x", version=0), NoNode),
        ],
    )
    def test_failed_operation_undoes_the_others(
        self, operation: Operation, error: type[Exception]
    ) -> None:
        site = Site()
        client, _ = site.connect()
        site.zookeeper.write(Create(path="/a"), Create(path="/a/b"))
        with pytest.raises(MultiFailed) as caught:
            site.settle(client.multi([Create(path="/c"), operation]))
        assert (caught.value.index, type(caught.value.error)) == (1, error)
        assert site.zookeeper.stat("/c") is None


class TestWatches:
    """One-time events."""

    def test_watch_fires_once(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.zookeeper.write(Create(path="/a"))
        seen: list[str] = []
        site.settle(client.get("/a", lambda: seen.append("data")))
        site.settle(client.children("/a", lambda: seen.append("children")))
        site.settle(client.exists("/b", lambda: seen.append("created")))
        site.zookeeper.write(Create(path="/a/x"))
        site.run(10)
        assert seen == ["children"]
        site.zookeeper.write(SetData(path="/a", data=b"1"))
        site.zookeeper.write(SetData(path="/a", data=b"2"))
        site.zookeeper.write(Create(path="/b"))
        site.run(10)
        assert seen == ["children", "data", "created"]

    def test_deletion_fires_watches_of_data_and_children(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.zookeeper.write(Create(path="/a"))
        seen: list[str] = []
        site.settle(client.get("/a", lambda: seen.append("data")))
        site.settle(client.children("/a", lambda: seen.append("children")))
        site.zookeeper.write(Delete(path="/a"))
        site.run(10)
        assert sorted(seen) == ["children", "data"]

    def test_watch_of_a_missing_znode_is_not_set_by_get(self) -> None:
        site = Site()
        client, _ = site.connect()
        seen: list[str] = []
        with pytest.raises(NoNode):
            site.settle(client.get("/a", lambda: seen.append("data")))
        site.zookeeper.write(Create(path="/a"))
        site.run(10)
        assert seen == []

    def test_event_arrives_before_a_response_with_the_change(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.zookeeper.write(Create(path="/a"))
        order: list[object] = []
        site.settle(client.get("/a", lambda: order.append("event")))
        client.hold()
        site.zookeeper.write(SetData(path="/a", data=b"new"))
        client.get("/a").then(lambda found: order.append(found[0]), order.append)
        site.run(10)
        assert order == [b""]
        client.catch_up()
        client.get("/a").then(lambda found: order.append(found[0]), order.append)
        site.run(10)
        assert order == [b"", "event", b"new"]

    def test_server_after_a_lost_response_may_lag_behind_it(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.zookeeper.write(Create(path="/a"))
        client.hold()
        site.zookeeper.on_request = lambda _, request: (
            Fault.LOSE_AFTER if request.kind == "multi" else Fault.NONE
        )
        with pytest.raises(ConnectionLost):
            site.settle(client.multi([Delete(path="/a")]))
        assert site.zookeeper.stat("/a") is None
        assert site.settle(client.exists("/a")) is not None
        site.settle(client.sync())
        assert site.settle(client.exists("/a")) is None

    def test_watches_are_lost_with_the_connection(self) -> None:
        site = Site()
        client, states = site.connect()
        site.zookeeper.write(Create(path="/a"))
        seen: list[str] = []
        site.settle(client.get("/a", lambda: seen.append("data")))
        client.lose_connection()
        site.run(100)
        site.zookeeper.write(SetData(path="/a", data=b"1"))
        site.run(10)
        assert seen == []
        assert states == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.CONNECTED,
        ]


class TestStaleReads:
    """A server that lags behind."""

    def test_held_server_shows_the_past_until_a_write_or_sync(self) -> None:
        for catch_up in ("write", "failed write", "sync"):
            site = Site()
            client, _ = site.connect()
            site.zookeeper.write(Create(path="/a", data=b"old"))
            client.hold()
            site.zookeeper.write(SetData(path="/a", data=b"new"), Create(path="/a/b"))
            site.zookeeper.write(Create(path="/c"), Delete(path="/a/b"))
            assert site.settle(client.get("/a"))[0] == b"old"
            assert site.settle(client.exists("/c")) is None
            assert site.settle(client.children("/a")) == []
            if catch_up == "sync":
                site.settle(client.sync())
            elif catch_up == "write":
                site.settle(client.multi([Create(path="/d")]))
            else:
                with pytest.raises(MultiFailed):
                    site.settle(client.multi([Create(path="/c")]))
            assert site.settle(client.get("/a"))[0] == b"new"
            stat = site.settle(client.exists("/c"))
            assert isinstance(stat, ZnodeStat)

    def test_past_is_forgotten_when_every_client_has_seen_it(self) -> None:
        site = Site()
        site.connect()
        site.zookeeper.write(Create(path="/a"))
        for number in range(1000):
            site.zookeeper.write(SetData(path="/a", data=b"%d" % number))
        assert len(site.zookeeper.znodes.log) == 0


class TestSessions:
    """Sessions and their ephemeral znodes."""

    def test_session_outlives_its_client_by_the_timeout(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.settle(client.multi([Create(path="/e", ephemeral=True)]))
        client.kill()
        site.run(TIMEOUT_MS / 2)
        stat = site.zookeeper.stat("/e")
        assert stat is not None
        assert stat.ephemeral_owner == client.session_id
        site.run(TIMEOUT_MS / 2)
        assert site.zookeeper.stat("/e") is None

    def test_closed_session_ends_at_once(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.settle(client.multi([Create(path="/e", ephemeral=True)]))
        client.close()
        assert site.zookeeper.stat("/e") is None

    def test_session_survives_a_lost_connection(self) -> None:
        site = Site()
        client, _ = site.connect()
        site.settle(client.multi([Create(path="/e", ephemeral=True)]))
        session_id = client.session_id
        client.lose_connection()
        site.run(10 * TIMEOUT_MS)
        assert client.session_id == session_id
        assert site.zookeeper.stat("/e") is not None

    def test_cut_client_notices_before_its_session_expires(self) -> None:
        site = Site()
        client, states = site.connect()
        site.settle(client.multi([Create(path="/e", ephemeral=True)]))
        session_id = client.session_id
        client.cut()
        waiting = client.get("/e")
        site.run(TIMEOUT_MS * 2 / 3)
        with pytest.raises(ConnectionLost):
            outcome(waiting)
        site.run(TIMEOUT_MS)
        queued = client.get("/e")
        assert site.zookeeper.stat("/e") is None
        client.restore()
        with pytest.raises(SessionExpired):
            site.settle(queued)
        assert states[1:] == [
            SessionState.SUSPENDED,
            SessionState.EXPIRED,
            SessionState.CONNECTED,
        ]
        assert client.session_id != session_id

    def test_no_session_expires_without_quorum(self) -> None:
        site = Site()
        client, states = site.connect()
        site.settle(client.multi([Create(path="/e", ephemeral=True)]))
        site.zookeeper.lose_quorum()
        site.run(10 * TIMEOUT_MS)
        site.zookeeper.restore_quorum()
        site.run(TIMEOUT_MS / 2)
        assert site.zookeeper.stat("/e") is not None
        assert states[-1] is SessionState.CONNECTED

    @pytest.mark.parametrize("fault", [Fault.LOSE_BEFORE, Fault.LOSE_AFTER])
    def test_lost_write_is_applied_or_not(self, fault: Fault) -> None:
        site = Site()
        client, _ = site.connect()
        site.zookeeper.on_request = lambda *_: fault
        write = client.multi([Create(path="/a")])
        behind = client.exists("/a")
        site.run(1)
        for later in (write, behind):
            with pytest.raises(ConnectionLost):
                outcome(later)
        assert (site.zookeeper.stat("/a") is not None) is (fault is Fault.LOSE_AFTER)
