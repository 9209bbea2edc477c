"""How responses, events and states of kazoo's thread reach the reactor, without a server."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kazoo")
from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CheckVersion, Connect
from kazoo.protocol.states import Callback, WatchedEvent
from kazoo.protocol.states import ZnodeStat as KazooStat

from plog.zookeeper import kazoo_client
from plog.zookeeper.kazoo_client import KazooZooKeeper
from plog.zookeeper.operations import (
    BadVersion,
    Check,
    ClientClosed,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    NoNode,
    SessionExpired,
    SessionState,
    SetData,
    ZnodeStat,
    ZooKeeperError,
)
from plogd.ports import Later
from tests.helpers.sim.sim_ports import outcome

STAT = KazooStat(7, 8, 1000, 1001, 3, 0, 0, 99, 5, 0, 7)


class Reactor:
    """Calls from other threads, which run in `run`."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()

    def callFromThread(self, function: Callable[..., Any], *args: Any) -> None:
        self.calls.append(lambda: function(*args))

    def run(self) -> None:
        while self.calls:
            self.calls.popleft()()


class Site:
    """A client that is not started; `requests` are those that it has passed to kazoo."""

    def __init__(self, hosts: str = "127.0.0.1:1") -> None:
        self.reactor = Reactor()
        self.client = KazooZooKeeper(
            hosts, reactor=self.reactor, session_timeout_ms=5000, pending=Later
        )
        self.requests: list[tuple[Any, Any]] = []
        self.client._client._call = lambda request, handle: self.requests.append((request, handle))
        self.states: list[SessionState] = []
        self.client.listen(self.states.append)

    def state(self, state: str) -> None:
        self.client._on_kazoo_state(state)


def test_responses_and_events_keep_their_order() -> None:
    site = Site()
    seen: list[object] = []
    site.client.get("/a", lambda: seen.append("event")).then(seen.append, seen.append)
    site.client.exists("/b").then(seen.append, seen.append)
    (get, get_handle), (_, exists_handle) = site.requests
    site.state(KazooState.CONNECTED)

    def deliver() -> None:
        get_handle.set((b"data", STAT))
        event = WatchedEvent("CHANGED", "CONNECTED", "/a")
        site.client._sockets.dispatch_callback(Callback("watch", get.watcher, (event,)))
        exists_handle.set(None)
        site.state(KazooState.SUSPENDED)

    thread = threading.Thread(target=deliver)
    thread.start()
    thread.join()
    # Nothing runs on the other thread.
    assert seen == []
    site.reactor.run()
    stat = ZnodeStat(version=3, czxid=7, mzxid=8, ctime_ms=1000, ephemeral_owner=99)
    assert seen == [(b"data", stat), "event", None]
    assert site.states == [SessionState.CONNECTED, SessionState.SUSPENDED]


@pytest.mark.parametrize(("chroot", "path"), [("", "/"), ("/plog/c", "/plog/c")])
def test_confirmation_is_a_transaction_that_changes_nothing(chroot: str, path: str) -> None:
    site = Site(f"127.0.0.1:1{chroot}")
    confirmed = site.client.confirm()
    [(request, handle)] = site.requests
    assert request.operations == [CheckVersion(path, -1)]
    handle.set([True])
    site.reactor.run()
    assert outcome(confirmed) is None


def test_rejected_confirmation_fails() -> None:
    site = Site()
    confirmed = site.client.confirm()
    [(_, handle)] = site.requests
    handle.set([NoNodeError()])
    site.reactor.run()
    with pytest.raises(MultiFailed):
        outcome(confirmed)


def test_handshake_is_as_old_as_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0

    def invoke(*_: Any) -> Any:
        nonlocal now_s
        now_s += 3
        return SimpleNamespace(session_id=5, time_out=4000), None

    monkeypatch.setattr(kazoo_client, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(ConnectionHandler, "_invoke", invoke)
    site = Site()
    connect = Connect(0, 0, 5000, 0, b"", False)
    site.client._client._connection._invoke(1.0, connect)
    site.reactor.run()
    now_s += 1
    assert site.client.handshake_age_ms == 4000
    assert (site.client.session_id, site.client.session_timeout_ms) == (5, 4000)


def test_failing_callback_does_not_stop_the_others() -> None:
    site = Site()
    seen: list[object] = []
    site.client.exists("/a").then(lambda _: 1 // 0, seen.append)
    site.client.exists("/b").then(seen.append, seen.append)
    for _, handle in site.requests:
        handle.set(None)
    with pytest.raises(ZeroDivisionError):
        site.reactor.run()
    site.reactor.run()
    assert seen == [None]


def test_many_responses_are_handled_in_several_runs() -> None:
    site = Site()
    laters = [site.client.exists("/a") for _ in range(1000)]
    for _, handle in site.requests:
        handle.set(None)
    runs = 0
    while site.reactor.calls:
        site.reactor.calls.popleft()()
        runs += 1
    assert all(later.done for later in laters)
    assert runs > 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NoNodeError(), NoNode),
        (ConnectionLoss(), ConnectionLost),
        (SessionExpiredError(), SessionExpired),
        (ValueError("broken"), ZooKeeperError),
    ],
)
def test_errors_are_those_of_the_port(error: Exception, expected: type[Exception]) -> None:
    site = Site()
    later = site.client.get("/a")
    site.requests[0][1].set_exception(error)
    # kazoo sets an outcome twice if the connection closes at the wrong moment.
    site.requests[0][1].set_exception(ConnectionLoss())
    site.reactor.run()
    with pytest.raises(expected):
        outcome(later)


class TestMulti:
    """Transactions, whose errors kazoo returns as values."""

    def test_results_are_converted(self) -> None:
        site = Site("127.0.0.1:1/chroot")
        later = site.client.multi(
            [
                Create(path="/a", data=b"1", ephemeral=True, sequential=True),
                SetData(path="/a", data=b"2", version=4),
                Delete(path="/b", version=5),
                Check(path="/c", version=6),
            ]
        )
        [(request, handle)] = site.requests
        create, set_data, delete, check = request.operations
        assert (create.path, create.data, create.flags) == ("/chroot/a", b"1", 3)
        assert tuple(set_data) == ("/chroot/a", b"2", 4)
        assert tuple(delete) == ("/chroot/b", 5)
        assert tuple(check) == ("/chroot/c", 6)
        handle.set(["/a0000000001", STAT, True, True])
        site.reactor.run()
        path, stat, *rest = outcome(later)
        assert (path, stat.version, rest) == ("/a0000000001", 3, [None, None])

    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_failed_operation_is_named(self, index: int) -> None:
        site = Site()
        later = site.client.multi([Delete(path="/a")] * 3)
        errors: list[Exception] = [RolledBackError()] * index
        errors += [BadVersionError()]
        errors += [RuntimeInconsistency()] * (2 - index)
        site.requests[0][1].set(errors)
        site.reactor.run()
        with pytest.raises(MultiFailed) as caught:
            outcome(later)
        assert (caught.value.index, type(caught.value.error)) == (index, BadVersion)

    def test_transaction_without_a_cause_is_an_error(self) -> None:
        site = Site()
        later = site.client.multi([Delete(path="/a")])
        site.requests[0][1].set([RuntimeInconsistency()])
        site.reactor.run()
        with pytest.raises(ZooKeeperError, match="rejected a transaction"):
            outcome(later)


class TestState:
    """Sessions, and the chroot."""

    def test_expired_session_fails_requests_first(self) -> None:
        site = Site()
        order: list[object] = []
        site.client.listen(order.append)
        site.client.exists("/a").then(order.append, lambda error: order.append(type(error)))
        site.state(KazooState.LOST)
        site.reactor.run()
        assert order == [SessionExpired, SessionState.EXPIRED]
        # kazoo fails the request later, too.
        site.requests[0][1].set_exception(SessionExpiredError())
        site.reactor.run()
        assert order == [SessionExpired, SessionState.EXPIRED]

    def test_chroot_is_created_before_the_connection_is_reported(self) -> None:
        site = Site("127.0.0.1:1/a/b")
        site.state(KazooState.CONNECTED)
        site.reactor.run()
        assert site.states == []
        assert [request.path for request, _ in site.requests] == ["/a", "/a/b"]
        site.requests[0][1].set_exception(NodeExistsError())
        site.requests[1][1].set("/a/b")
        site.reactor.run()
        assert site.states == [SessionState.CONNECTED]
        # Only once.
        site.state(KazooState.SUSPENDED)
        site.state(KazooState.CONNECTED)
        site.reactor.run()
        assert len(site.requests) == 2
        assert site.states[-1] is SessionState.CONNECTED

    def test_chroot_is_tried_again_after_a_lost_connection(self) -> None:
        site = Site("127.0.0.1:1/a")
        site.state(KazooState.CONNECTED)
        site.reactor.run()
        site.requests[0][1].set_exception(ConnectionLoss())
        site.reactor.run()
        assert SessionState.CONNECTED not in site.states
        site.state(KazooState.CONNECTED)
        site.reactor.run()
        site.requests[1][1].set("/a")
        site.reactor.run()
        assert site.states[-1] is SessionState.CONNECTED

    def test_root_of_the_chroot_is_the_chroot(self) -> None:
        site = Site("127.0.0.1:1/a/b")
        site.client.children("/")
        site.client.sync()
        assert [request.path for request, _ in site.requests] == ["/a/b", "/a/b"]

    def test_request_on_a_lost_connection_fails_before_its_loss_is_reported(self) -> None:
        """kazoo would queue it, and block the reactor when it has queued some hundred requests."""
        site = Site()
        site.client._set_session(99, 5000, 0.0)
        site.client._client._live.set()
        site.client.exists("/a")
        site.client._client._live.clear()
        lost = site.client.exists("/b")
        assert not lost.done
        site.reactor.run()
        with pytest.raises(ConnectionLost):
            outcome(lost)
        assert [request.path for request, _ in site.requests] == ["/a"]
        site.client._client._live.set()
        site.client.exists("/c")
        assert [request.path for request, _ in site.requests] == ["/a", "/c"]

    def test_closed_client_fails_requests(self) -> None:
        site = Site()
        before = site.client.exists("/a")
        site.client.close()
        for later in (before, site.client.exists("/a")):
            with pytest.raises(ClientClosed):
                outcome(later)
        site.state(KazooState.LOST)
        site.reactor.run()
        assert site.states == []
