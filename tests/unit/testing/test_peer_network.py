"""The network between brokers in one process: order, delays and faults."""

from __future__ import annotations

import errno

import pytest

from plogd.apis.dispatch import Dispatched
from plogd.connection_context import ConnectionContext
from plogd.log.segment.file_records import FileRegion
from plogd.peers import PeerUnavailable
from plogd.ports import Later, Turn
from plogd.testing.peer_network import Link, PeerNetwork
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.sim_time import SimClock, SimTimers


class Site:
    """Brokers 1 and 2, which answer each request with its own bytes, and a link between them."""

    def __init__(self) -> None:
        self.timers = SimTimers(SimClock())
        self.delays_ms: list[float] = []
        """The delays of the next frames; without any, frames take 1 ms."""
        self.network = PeerNetwork(self.timers.clock, self.timers, self._delay_ms)
        self.parked: list[Later[list[bytes]]] = []
        """If a request is ``park``, its answer is here."""
        self.listeners: list[str] = []
        """The names of the listeners on which requests have arrived."""
        turn = Turn(self.timers)
        for broker_id in (1, 2):
            self.network.join(broker_id, self._dispatch, turn=turn, listener_name="INSIDE")

    def _delay_ms(self, source: int, target: int) -> float:
        return self.delays_ms.pop(0) if self.delays_ms else 1.0

    def _dispatch(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        self.listeners.append(connection.listener_name)
        if bytes(frame) != b"park":
            return Dispatched(False, [b"size" + bytes(frame)])
        answer: Later[list[bytes]] = Later()
        self.parked.append(answer)
        return Dispatched(False, answer)  # type: ignore[arg-type]  # Lists are invariant.

    def connect(self) -> Link:
        opened = self.network.connect(1, 2)
        self.timers.advance(10)
        return outcome(opened)

    def times_of(self, answers: list[Later[bytes]]) -> list[tuple[bytes, float]]:
        """Return the frames and the times at which they arrive."""
        arrived: list[tuple[bytes, float]] = []
        start_ms = self.timers.clock.monotonic_ms()
        for answer in answers:
            answer.then(
                lambda frame: arrived.append((frame, self.timers.clock.monotonic_ms() - start_ms)),
                lambda error: arrived.append((str(error).encode(), -1.0)),
            )
        self.timers.advance(1000)
        return arrived


def test_response_takes_the_delay_of_both_directions() -> None:
    site = Site()
    link = site.connect()
    site.delays_ms = [3.0, 4.0]
    assert site.times_of([link.ask(b"a")]) == [(b"a", 7.0)]
    assert site.listeners == ["INSIDE"]


def test_frame_does_not_overtake_an_earlier_one() -> None:
    site = Site()
    link = site.connect()
    site.delays_ms = [9.0, 1.0]
    assert site.times_of([link.ask(b"a"), link.ask(b"b")]) == [(b"a", 10.0), (b"b", 10.0)]


def test_request_starts_when_the_earlier_ones_have_been_answered() -> None:
    site = Site()
    link = site.connect()
    answers = [link.ask(b"park"), link.ask(b"b")]
    site.timers.advance(50)
    assert len(site.listeners) == 1
    site.parked[0].succeed([b"size", b"parked"])
    assert site.times_of(answers) == [(b"parked", 1.0), (b"b", 1.0)]


def test_request_of_a_closed_connection_is_cancelled() -> None:
    site = Site()
    link = site.connect()
    answer = link.ask(b"park")
    site.timers.advance(50)
    site.network.reset(1, 2)
    assert site.parked[0].done
    assert not link.is_open
    with pytest.raises(PeerUnavailable, match="reset"):
        outcome(answer)
    with pytest.raises(PeerUnavailable, match="closed"):
        outcome(link.ask(b"a"))


@pytest.mark.parametrize(("cut", "started"), [((1, 2), 0), ((2, 1), 1)])
def test_cut_holds_frames_of_one_direction_back(cut: tuple[int, int], started: int) -> None:
    site = Site()
    link = site.connect()
    site.network.cut(*cut)
    answers = [link.ask(b"a"), link.ask(b"b")]
    site.timers.advance(500)
    assert len(site.listeners) == started * 2
    assert not answers[0].done
    site.network.heal(*cut)
    assert [frame for frame, _ in site.times_of(answers)] == [b"a", b"b"]


def test_frame_in_transit_is_held_back_by_a_later_cut() -> None:
    site = Site()
    link = site.connect()
    site.delays_ms = [5.0]
    answer = link.ask(b"a")
    site.timers.advance(4)
    site.network.cut(1, 2)
    site.timers.advance(100)
    assert site.listeners == []
    site.network.heal(1, 2)
    assert site.times_of([answer]) == [(b"a", 1.0)]


def test_connection_is_opened_after_a_cut() -> None:
    site = Site()
    site.network.cut(2, 1)
    opened = site.network.connect(1, 2)
    site.timers.advance(10_000)
    assert not opened.done
    site.network.heal(2, 1)
    site.timers.advance(100)
    assert outcome(opened).is_open


def test_broker_that_has_left_refuses_connections() -> None:
    site = Site()
    link = site.connect()
    site.network.leave(2)
    assert not link.is_open
    opened = site.network.connect(1, 2)
    site.timers.advance(10)
    with pytest.raises(PeerUnavailable, match="connection refused"):
        outcome(opened)


def test_no_code_of_a_broker_runs_after_it_has_left() -> None:
    site = Site()
    answer = site.connect().ask(b"park")
    site.timers.advance(50)
    opening = site.network.connect(1, 2)
    site.network.leave(2)
    assert not site.parked[0].done, "the request is not cancelled"
    assert answer.done
    site.network.leave(1)
    site.timers.advance(1000)
    assert not opening.done


def test_connection_of_an_ended_process_is_not_opened_for_the_next_one() -> None:
    site = Site()
    site.network.cut(1, 2)
    opening = site.network.connect(1, 2)
    site.network.leave(1)
    site.network.join(1, site._dispatch, turn=Turn(site.timers))
    site.network.heal(1, 2)
    site.timers.advance(1000)
    assert not opening.done


def test_requests_of_a_broker_that_has_left_get_no_outcome() -> None:
    site = Site()
    answer = site.connect().ask(b"park")
    site.timers.advance(50)
    site.network.leave(1)
    site.timers.advance(1000)
    assert not answer.done
    assert site.parked[0].done, "as for a client that has disconnected, it is cancelled"


def test_lost_response_breaks_the_connection_once() -> None:
    site = Site()
    site.network.lose_response(1, 2)
    link = site.connect()
    [(why, _)] = site.times_of([link.ask(b"a")])
    assert (why, len(site.listeners)) == (b"the response was lost", 1)
    assert site.times_of([site.connect().ask(b"b")]) == [(b"b", 2.0)]


def test_response_that_cannot_be_read_from_disk_breaks_the_connection() -> None:
    site = Site()
    link = site.connect()
    answer = link.ask(b"park")
    site.timers.advance(50)
    files = SimFiles(["/d"])
    file = files.open_append("/d/a")
    file.append(b"record")
    region = FileRegion(file, 0, 6)
    file.close()
    files.fail_when(lambda operation: operation.name == "pread", errno.EIO)
    site.parked[0].succeed([b"size", region])  # type: ignore[list-item]
    assert not link.is_open
    assert not file._holders  # type: ignore[attr-defined]
    with pytest.raises(PeerUnavailable, match="Input/output error"):
        outcome(answer)
