"""Rounds: one run of a load on each broker in turn, which rounds count, and their statistics.

Pure. A round maps a broker's name to the figures of its run. Ratios of two brokers are computed
within a round, so that they compare the same minute of the machine; the median is taken over
rounds. A round in which other processes used CPU is discarded and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

Figures: TypeAlias = Mapping[str, Any]
Round: TypeAlias = Mapping[str, Figures]

NOISE_MAX = 0.2
"""CPU seconds of other processes per second of a run; a run above it does not count."""
_NOISE_NEGLIGIBLE_S = 0.1
"""CPU seconds that clock ticks and background syncs may use in a short run."""


def is_noisy(figures: Figures) -> bool:
    """Whether other processes used much CPU during any step of this run.

    >>> is_noisy({"wall_s": 4.0, "other_cpu_s": 0.5}), is_noisy({"wall_s": 4.0, "other_cpu_s": 1})
    (False, True)
    >>> is_noisy({"in.wall_s": 9.0, "in.other_cpu_s": 0.1, "out.wall_s": 2, "out.other_cpu_s": 0.9})
    True
    """
    for name, other_s in figures.items():
        if name.endswith("other_cpu_s"):
            wall_s = figures[name.removesuffix("other_cpu_s") + "wall_s"]
            if other_s > max(NOISE_MAX * wall_s, _NOISE_NEGLIGIBLE_S):
                return True
    return False


def counts(round_: Round, judged: Sequence[str]) -> bool:
    """Whether no run of the judged brokers was noisy."""
    return not any(is_noisy(round_[name]) for name in judged if name in round_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target for one figure of a load; `of` computes the figure of a broker from a round.

    The report also shows the figure of the broker `reported`, to which the target does not apply:
    plog with its defaults, which syncs.
    """

    what: str
    of: Callable[[Round, str], float]
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    subject: str = "plog"
    reported: str = "plog-default"

    def is_met(self, value: float) -> bool:
        """Whether `value` is within the bound; always True for a target without one."""
        if self.at_most is not None:
            return value <= self.at_most
        return self.at_least is None or value >= self.at_least

    @property
    def bound(self) -> str:
        """The bound as text for the table."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}{self.unit}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of some values."""

    middle: float
    least: float
    greatest: float
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of `values`, or None if there are no values.

    >>> spread([3.0, 1.0, 2.0])
    Spread(middle=2.0, least=1.0, greatest=3.0, count=3)
    """
    if not values:
        return None
    return Spread(median(values), min(values), max(values), len(values))


def values_of(target: Target, rounds: Sequence[Round], subject: str) -> list[float]:
    """Return the target's figure in every round that has the necessary figures."""
    values = []
    for round_ in rounds:
        try:
            values.append(target.of(round_, subject))
        except (KeyError, ZeroDivisionError, TypeError):  # The round lacks that broker or figure.
            continue
    return values


def figure(name: str, key: str = "", scale: float = 1.0) -> Callable[[Round, str], float]:
    """Return a function for a figure of the broker; `key` selects one of its quantiles.

    >>> figure("ms", "p99")({"plog": {"ms": {"p99": 2.5}}}, "plog")
    2.5
    """

    def of(round_: Round, subject: str) -> float:
        found = round_[subject][name]
        return float(found[key] if key else found) * scale

    return of


def ratio(
    name: str, key: str = "", *, against: str = "kafka", against_name: str = ""
) -> Callable[[Round, str], float]:
    """Return a function for the ratio to the figure of the broker `against` in the same round.

    >>> ratio("cpu")({"plog": {"cpu": 1.0}, "kafka": {"cpu": 4.0}}, "plog")
    0.25
    """
    own, other = figure(name, key), figure(against_name or name, key)
    return lambda round_, subject: own(round_, subject) / other(round_, against)


def of_possible_rate(depth: int) -> Callable[[Round, str], float]:
    """Return a function for the rate of synced requests, relative to the possible rate.

    With `depth` requests in flight, one sync can acknowledge that many. The possible rate is
    depth ÷ (bare fdatasync p50 + 0.1 ms), or the rate without syncs if that is lower.

    >>> disk = {"fdatasync_ms": {"p50": 0.4}}
    >>> runs = {"disk": disk, "plog": {"requests_s": 9000}, "plog-default": {"requests_s": 3000}}
    >>> of_possible_rate(2)(runs, "plog-default")
    0.75
    """

    def of(round_: Round, subject: str) -> float:
        sync_s = (float(round_["disk"]["fdatasync_ms"]["p50"]) + 0.1) / 1000
        possible = min(depth / sync_s, float(round_["plog"]["requests_s"]))
        return float(round_[subject]["requests_s"]) / possible

    return of


def difference(name: str, key: str, *, against: str) -> Callable[[Round, str], float]:
    """Return a function for the difference to the figure of the broker `against`."""
    of = figure(name, key)
    return lambda round_, subject: of(round_, subject) - of(round_, against)
