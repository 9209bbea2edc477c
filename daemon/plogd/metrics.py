"""Counters and gauges, and their text form for Prometheus.

A room registers its metrics once and keeps the objects, so that counting is one attribute addition:
no lock (everything belongs to the reactor's thread), no dictionary, no formatting. What is known
anyway, such as a log's size, is not counted but asked for at each scrape: a gauge with a function.
`Registry.lines` is called by http/metrics_page.py, which pauses between lines, so functions that
give many numbers must bear changes while they are asked.

Names: Kafka has the MBean ``kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=x``; the
usual rules of the JMX exporter call its count
``kafka_server_brokertopicmetrics_bytesin_total{topic="x"}``; ours are the same, so that dashboards
made for Kafka work. What Kafka lacks starts with ``plog_``. Text format: Prometheus 0.0.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isinf, isnan
from typing import Generic, Protocol, TypeAlias, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Labels: TypeAlias = tuple[tuple[str, str], ...]
Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]


class Counter:
    """A number that only grows. ``counter.value += n`` is as good as `inc`, and faster."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add `amount`."""
        self.value += amount

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """The lines of the text form."""
        yield _line(name, labels, self.value)


class Gauge:
    """A number that goes up and down: assign `value`, or give a function to ask at each scrape."""

    __slots__ = ("function", "value")
    kind = "gauge"

    def __init__(self, function: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self.function = function

    def inc(self, amount: float = 1) -> None:
        """Add `amount`, which may be negative."""
        self.value += amount

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """The lines of the text form."""
        yield _line(name, labels, self.value if self.function is None else self.function())


class _Metric(Protocol):
    """What can be exposed under one name."""

    @property
    def kind(self) -> str: ...
    def samples(self, name: str, labels: Labels) -> Iterator[str]: ...


M = TypeVar("M", bound=_Metric)


class Family(Generic[M]):
    """One metric for each combination of label values, made at first use.

    Label values must come from a bounded set (topics, request names), never from what a client may
    choose freely. Keep what `labels` returns where it is counted often.
    """

    __slots__ = ("_children", "_label_names", "_make", "kind")

    def __init__(self, kind: str, label_names: Sequence[str], make: Callable[[], M]) -> None:
        self.kind = kind
        self._label_names = tuple(label_names)
        self._make = make
        self._children: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """The metric of these label values, in the order of the label names."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self._label_names):
                raise ValueError(f"labels are {self._label_names}, not {values}")
            child = self._children[values] = self._make()
        return child

    def remove(self, *values: str) -> None:
        """Forget the metric of these label values, if there is one: its topic is gone."""
        self._children.pop(values, None)

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """The lines of the text form, in the order of the label values."""
        for values, child in sorted(self._children.items()):
            own = tuple(zip(self._label_names, values, strict=True))
            yield from child.samples(name, (*labels, *own))


class _Asked:
    """Gauges or counters whose label values and numbers are both asked for at each scrape."""

    __slots__ = ("_function", "_label_names", "kind")

    def __init__(
        self, kind: str, label_names: Sequence[str], function: Callable[[], Samples]
    ) -> None:
        self.kind = kind
        self._label_names = tuple(label_names)
        self._function = function

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        for values, number in self._function():
            own = tuple(zip(self._label_names, values, strict=True))
            yield _line(name, (*labels, *own), number)


class Registry:
    """All metrics of one broker, by name."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[str, _Metric]] = {}

    def counter(self, name: str, help: str) -> Counter:
        """Register a counter; by custom its name ends with ``_total``."""
        return self._add(name, help, Counter())

    def counters(self, name: str, help: str, labels: Sequence[str]) -> Family[Counter]:
        """Register a counter for each combination of label values."""
        return self._add(name, help, Family(Counter.kind, _checked(labels), Counter))

    def gauge(self, name: str, help: str, function: Callable[[], float] | None = None) -> Gauge:
        """Register a gauge that is set, or one whose value `function` tells at each scrape."""
        return self._add(name, help, Gauge(function))

    def gauges(self, name: str, help: str, labels: Sequence[str]) -> Family[Gauge]:
        """Register a gauge for each combination of label values."""
        return self._add(name, help, Family(Gauge.kind, _checked(labels), Gauge))

    def ask(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        function: Callable[[], Samples],
        *,
        kind: str = Gauge.kind,
    ) -> None:
        """Register numbers `function` tells at each scrape, as (label values, number) pairs.

        For what has one number a partition, so that a thousand of them cost nothing in between.
        """
        self._add(name, help, _Asked(kind, _checked(labels), function))

    def lines(self) -> Iterator[str]:
        """All metrics in Prometheus' text format, line by line; others may run in between."""
        for name, (help, metric) in list(self._metrics.items()):
            yield f"# HELP {name} {_escaped_help(help)}"
            yield f"# TYPE {name} {metric.kind}"
            yield from metric.samples(name, ())

    def expose(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self.lines()).encode()

    def _add(self, name: str, help: str, metric: M) -> M:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a metric")
        if name in self._metrics:
            raise ValueError(f"{name} is registered already")
        self._metrics[name] = (help, metric)
        return metric


def _checked(labels: Sequence[str]) -> Sequence[str]:
    for label in labels:
        if not _NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"{label!r} cannot be the name of a label")
    return labels


def _line(name: str, labels: Labels, number: float) -> str:
    if not labels:
        return f"{name} {_number(number)}"
    pairs = ",".join(f'{label}="{_escaped_value(value)}"' for label, value in labels)
    return f"{name}{{{pairs}}} {_number(number)}"


def _number(number: float) -> str:
    """A number as Prometheus reads it.

    >>> [_number(x) for x in (3, 2.0, 0.25, float("inf"))]
    ['3', '2', '0.25', '+Inf']
    """
    if isinstance(number, int):
        return str(int(number))  # Also for what is an int and prints as something else.
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number.is_integer() else repr(number)


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped_value(text: str) -> str:
    return _escaped_help(text).replace('"', '\\"')
