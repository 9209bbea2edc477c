"""Counters and gauges, and their exposition in Prometheus' text format.

A package registers its metrics once and keeps the objects, so that counting is a single attribute
addition. A lock is not needed, because all metrics belong to the reactor's thread. Values that are
known anyway, such as the size of a log, are not counted: a gauge calls a function at each scrape.
http/metrics_page.py calls `Registry.lines` and pauses between lines, so a function that yields a
large number of samples must tolerate changes while it is suspended.

Kafka's metrics have the names that the usual rules of the JMX exporter derive from the MBeans, so
that dashboards made for Kafka work. For example,
``kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=x`` becomes
``kafka_server_brokertopicmetrics_bytesin_total{topic="x"}``. Metrics that Kafka lacks start with
``plog_``. Text format: Prometheus 0.0.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isinf, isnan
from typing import Generic, Protocol, TypeAlias, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Prometheus also allows colons in names, but reserves them for recording rules.
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Labels: TypeAlias = tuple[tuple[str, str], ...]
Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]


class Counter:
    """A number that only increases. ``counter.value += n`` is equivalent to `inc`, but faster."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add `amount`."""
        self.value += amount

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """Yield the lines of the text format."""
        yield _line(name, labels, self.value)


class Gauge:
    """A number that can decrease: assign `value`, or pass a function to call at each scrape."""

    __slots__ = ("function", "value")
    kind = "gauge"

    def __init__(self, function: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self.function = function

    def inc(self, amount: float = 1) -> None:
        """Add `amount`, which may be negative."""
        self.value += amount

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """Yield the lines of the text format."""
        yield _line(name, labels, self.value if self.function is None else self.function())


class _Metric(Protocol):
    """A metric, or a family of metrics, that is exposed under one name."""

    @property
    def kind(self) -> str: ...
    def samples(self, name: str, labels: Labels) -> Iterator[str]: ...


M = TypeVar("M", bound=_Metric)


class Family(Generic[M]):
    """One metric for each combination of label values, created at first use.

    Label values must come from a bounded set (topics, request names), never from values that a
    client chooses freely. Code that counts often should keep the result of `labels`.
    """

    __slots__ = ("_children", "_label_names", "_make", "kind")

    def __init__(self, kind: str, label_names: Sequence[str], make: Callable[[], M]) -> None:
        self.kind = kind
        self._label_names = tuple(label_names)
        self._make = make
        self._children: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """Return the metric for these label values, which are in the order of the label names."""
        child = self._children.get(values)
        if child is None:
            # Checked only here, because known values were checked when their metric was created.
            if len(values) != len(self._label_names):
                raise ValueError(f"label values {values} do not match labels {self._label_names}")
            child = self._children[values] = self._make()
        return child

    def remove(self, *values: str) -> None:
        """Remove the metric for these label values, if it exists, after a topic is deleted."""
        self._children.pop(values, None)

    def samples(self, name: str, labels: Labels) -> Iterator[str]:
        """Yield the lines of the text format, in the order of the label values."""
        # A sorted copy, because metrics may be created while this is suspended.
        for values, child in sorted(self._children.items()):
            own = tuple(zip(self._label_names, values, strict=True))
            yield from child.samples(name, (*labels, *own))


class _Computed:
    """Gauges or counters whose label values and numbers are computed at each scrape."""

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
        # The order of registration is the order on the page, so related metrics stay together.
        self._metrics: dict[str, tuple[str, _Metric]] = {}

    def counter(self, name: str, help: str) -> Counter:
        """Register a counter; by convention its name ends with ``_total``."""
        return self._add(name, help, Counter())

    def counters(self, name: str, help: str, labels: Sequence[str]) -> Family[Counter]:
        """Register a counter for each combination of label values."""
        return self._add(name, help, Family(Counter.kind, _checked(labels), Counter))

    def gauge(self, name: str, help: str, function: Callable[[], float] | None = None) -> Gauge:
        """Register a gauge: assign its value, or let `function` return it at each scrape."""
        return self._add(name, help, Gauge(function))

    def ask(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        function: Callable[[], Samples],
        *,
        kind: str = Gauge.kind,
    ) -> None:
        """Register numbers that `function` returns at each scrape: (label values, number) pairs.

        Use this for metrics with one number per partition: it costs nothing between two scrapes.
        """
        self._add(name, help, _Computed(kind, _checked(labels), function))

    def lines(self) -> Iterator[str]:
        """Yield all metrics in Prometheus' text format; other code may run between two lines."""
        # A copy, because metrics may be registered while this is suspended.
        for name, (help, metric) in list(self._metrics.items()):
            yield f"# HELP {name} {_escaped_help(help)}"
            yield f"# TYPE {name} {metric.kind}"
            yield from metric.samples(name, ())

    def expose(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self.lines()).encode()

    def _add(self, name: str, help: str, metric: M) -> M:
        if not _NAME.fullmatch(name):
            raise ValueError(f"invalid metric name: {name!r}")
        if name in self._metrics:
            # Prometheus rejects the whole page if a metric appears twice.
            raise ValueError(f"metric {name} is already registered")
        self._metrics[name] = (help, metric)
        return metric


def _checked(labels: Sequence[str]) -> Sequence[str]:
    for label in labels:
        # Prometheus reserves label names that start with two underscores.
        if not _NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"invalid label name: {label!r}")
    return labels


def _line(name: str, labels: Labels, number: float) -> str:
    if not labels:
        return f"{name} {_number(number)}"
    pairs = ",".join(f'{label}="{_escaped_value(value)}"' for label, value in labels)
    return f"{name}{{{pairs}}} {_number(number)}"


def _number(number: float) -> str:
    """Format a number for Prometheus.

    >>> [_number(x) for x in (3, 2.0, 0.25, float("inf"))]
    ['3', '2', '0.25', '+Inf']
    """
    if isinstance(number, int):
        return str(int(number))  # str of a subclass, such as True, may not be a number.
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number.is_integer() else repr(number)


def _escaped_help(text: str) -> str:
    # The text format escapes quotation marks only in label values, not in HELP lines.
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped_value(text: str) -> str:
    return _escaped_help(text).replace('"', '\\"')
