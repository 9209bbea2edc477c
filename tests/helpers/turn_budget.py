"""Counts what each turn of the simulated reactor costs, and compares it with a budget.

    broker = metered_broker(num_partitions=3)
    broker.ask(DescribeGroupsRequest(groups=names), 5)
    broker.meter.check()                # AssertionError: names the turn and its most frequent lines

A turn is what the reactor does between two polls of its sockets: one dispatched request, the timers
that are due together, or the delivery of a job's result. Every other client waits while a turn
runs. Its cost is a count, so that the result is the same on every machine: lines of Python that
were executed (`sys.settrace`), and bytes that passed through a compression library, which takes
long in a single line. Jobs run in threads of their own and cost the reactor nothing.

The generated code that reads a request and writes its response is counted separately: it takes one
pass over the elements, whose number `plog.request.max.elements` bounds. The code of the tests, such
as the simulated disk, is not counted. A loop inside a C function is not seen either, except in the
compression libraries.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar
from unittest import mock

from plog.records import compression
from plogd.connection_context import ConnectionContext
from plogd.ports import Later
from tests.helpers.codec_forms import compiled, interpreted
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_ports import SimJobs, SimPorts
from tests.helpers.sim.sim_time import SimClock, SimTimers

T = TypeVar("T")

_WIRE_FILES = ("<decoder of ", "<bounded decoder of ", "<encoder of ")
_WIRE_HELPERS = ("/plog/wire/primitives.py", "/plog/wire/schema.py")
_SAMPLED_EVERY = 64
_PLACES_SHOWN = 5
_CODEC_FUNCTIONS = ("decode_records", "walk_records", "encode_records")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBudget:
    """The most that one turn may cost.

    Args:
        steps: Lines of Python, without those that read the request or write its response. The
            default takes 5 to 10 ms without the tracing.
        wire_steps: Lines that read the request and write its response.
        codec_bytes: Bytes before compression, and after decompression.
    """

    steps: int = 100_000
    wire_steps: int = 1_500_000
    codec_bytes: int = 64 << 10


@dataclass(slots=True)
class TurnCost:
    """The cost of one turn so far."""

    name: str
    steps: int = 0
    wire_steps: int = 0
    codec_bytes: int = 0
    places: Counter[tuple[str, int]] = field(default_factory=Counter)
    """File and line of one of every `_SAMPLED_EVERY` steps."""

    def excess(self, budget: TurnBudget) -> str | None:
        """Which bounds the turn exceeded, and by how much; None if it kept them all."""
        costs = [
            ("interpreted steps", self.steps, budget.steps),
            ("steps of reading and writing messages", self.wire_steps, budget.wire_steps),
            ("bytes compressed or decompressed", self.codec_bytes, budget.codec_bytes),
        ]
        over = [f"{cost:,} {what} (allowed: {most:,})" for what, cost, most in costs if cost > most]
        return (
            f"one turn ({self.name}) took {', '.join(over)}; {self.hot_spots()}" if over else None
        )

    def hot_spots(self) -> str:
        """The lines that took most steps, with their estimated counts."""
        spots = [
            f"{_short(file)}:{line} {count * _SAMPLED_EVERY:,}"
            for (file, line), count in self.places.most_common(_PLACES_SHOWN)
        ]
        return "most of them at " + (", ".join(spots) or "no line in particular")


def _short(file: str) -> str:
    for root in ("/plogd/", "/plog/", "/site-packages/"):
        if root in file:
            return file.partition(root)[2]
    return file


class TurnMeter:
    """Counts turns and keeps the costliest ones until `reset`."""

    def __init__(self, budget: TurnBudget | None = None) -> None:
        self.budget = budget or TurnBudget()
        self.is_on = True
        self._open: TurnCost | None = None
        self.reset()

    def reset(self) -> None:
        """Discard the turns so far."""
        self.turns = 0
        self.excesses: list[str] = []
        self.most = TurnCost("none")
        """The largest cost of each kind; they may come from different turns."""

    def check(self) -> None:
        """Raise AssertionError if a turn since the last `reset` exceeded the budget."""
        if self.excesses:
            more = len(self.excesses) - 1
            raise AssertionError(
                self.excesses[0] + (f"; {more} more turns did, too" if more else "")
            )

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Count what happens inside as one turn, or as part of the turn around it."""
        if self._open is not None or not self.is_on:
            yield
            return
        cost = self._open = TurnCost(name)
        before = sys.gettrace()
        sys.settrace(_tracer(cost))
        try:
            yield
        finally:
            sys.settrace(before)
            self._open = None
            self._end(cost)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Do not count what happens inside."""
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True

    def count_codec_bytes(self, nbytes: int) -> None:
        """Add bytes that were compressed or decompressed, if a turn is running."""
        if self._open is not None:
            self._open.codec_bytes += nbytes

    def _end(self, cost: TurnCost) -> None:
        self.turns += 1
        if cost.steps > self.most.steps:
            self.most.name, self.most.steps = cost.name, cost.steps
            self.most.places = cost.places
        self.most.wire_steps = max(self.most.wire_steps, cost.wire_steps)
        self.most.codec_bytes = max(self.most.codec_bytes, cost.codec_bytes)
        excess = cost.excess(self.budget)
        if excess is not None:
            self.excesses.append(excess)


def _tracer(cost: TurnCost) -> Callable[[FrameType, str, Any], Any]:
    """A trace function: called once for each call, it returns what is called for each line."""

    def on_work(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            cost.steps += 1
            if not cost.steps % _SAMPLED_EVERY:
                cost.places[frame.f_code.co_filename, frame.f_lineno] += 1
        return on_work

    def on_wire(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            cost.wire_steps += 1
        return on_wire

    tracers: dict[str, Any] = {}

    def on_call(frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if file not in tracers:
            is_wire = file.startswith(_WIRE_FILES) or file.endswith(_WIRE_HELPERS)
            tracers[file] = None if "/tests/" in file else on_wire if is_wire else on_work
        return tracers[file]

    return on_call


# -- a broker whose turns are counted -------------------------------------------------------------


class MeteredTimers(SimTimers):
    """Timers of a `SimClock`; those that are due together run in one turn."""

    def __init__(self, clock: SimClock, meter: TurnMeter) -> None:
        super().__init__(clock)
        self._meter = meter

    def run_next(self) -> None:
        with self._meter.turn("timer"):
            super().run_next()

    def run_due(self) -> bool:
        """As in Twisted, a call that is added meanwhile runs in the next turn."""
        ran = False
        while self._is_due():
            end_number = next(self._numbers)
            with self._meter.turn("timers due together"):
                while self._is_due() and self._heap[0][1] < end_number:
                    super().run_next()
            ran = True
        return ran

    def _is_due(self) -> bool:
        due_ms = self.next_due_ms
        return due_ms is not None and due_ms <= self._soon_ms()


class MeteredJobs(SimJobs):
    """Jobs on serial lanes; the delivery of each result is a turn."""

    def __init__(self, meter: TurnMeter) -> None:
        super().__init__()
        self._meter = meter

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        delivered: Later[T] = Later()

        def on_value(value: T) -> None:
            with self._meter.turn(f"result of a job on lane {lane}"):
                delivered.succeed(value)

        def on_error(error: Exception) -> None:
            with self._meter.turn(f"error of a job on lane {lane}"):
                delivered.fail(error)

        super().submit(lane, function).then(on_value, on_error)
        return delivered


class MeteredPorts(SimPorts):
    """`SimPorts` whose turns are counted."""

    def __init__(self, meter: TurnMeter) -> None:
        super().__init__(timers=MeteredTimers(SimClock(), meter), jobs=MeteredJobs(meter))


class MeteredBroker(SimBroker):
    """A `SimBroker` whose turns are counted in `meter`."""

    def __init__(self, meter: TurnMeter, **settings: Any) -> None:
        self.meter = meter
        super().__init__(ports=MeteredPorts(meter), **settings)

    def dispatch_frame(self, frame: bytes, connection: ConnectionContext | None = None) -> Any:
        with self.meter.turn("dispatch"):
            return super().dispatch_frame(frame, connection)


def metered_broker(budget: TurnBudget | None = None, **settings: Any) -> MeteredBroker:
    """A broker that has started; its start was not counted. `settings` as for `SimBroker`."""
    meter = TurnMeter(budget)
    broker = MeteredBroker(meter, **settings)
    with meter.off():
        broker.start()
    return broker


@contextmanager
def countable_codecs(meter: TurnMeter) -> Iterator[None]:
    """Make work on records count: interpret the record codec, and count bytes of compression.

    The compiled codec takes no steps.
    """
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(compression._CODECS))
        for codec, (compress, decompress) in list(compression._CODECS.items()):
            counted = _counting_input(compress, meter), _counting_output(decompress, meter)
            compression._CODECS[codec] = counted
        module = compiled()
        if module is not None:
            for name in _CODEC_FUNCTIONS:
                _replace(getattr(module, name), getattr(interpreted(), name), stack)
        yield


def _replace(function: object, other: object, stack: ExitStack) -> None:
    """Use `other` in every module of plog that has imported `function` by its own name."""
    name = getattr(function, "__name__", "")
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("plog") and vars(module).get(name) is function:
            stack.enter_context(mock.patch.object(module, name, other))


def _counting_input(compress: Callable[..., bytes], meter: TurnMeter) -> Callable[..., bytes]:
    def counted(data: bytes, level: int | None) -> bytes:
        meter.count_codec_bytes(len(data))
        return compress(data, level)

    return counted


def _counting_output(decompress: Callable[..., bytes], meter: TurnMeter) -> Callable[..., bytes]:
    def counted(data: bytes, max_bytes: int) -> bytes:
        plain = decompress(data, max_bytes)
        meter.count_codec_bytes(len(plain))
        return plain

    return counted
