"""Selection of rounds that count, and their comparison with the targets."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from tests.bench import report, results, rounds, session
from tests.bench.rounds import (
    Target,
    counts,
    difference,
    figure,
    is_noisy,
    ratio,
    spread,
    values_of,
)

QUIET = {"wall_s": 4.0, "other_cpu_s": 0.4}
NOISY = {"wall_s": 4.0, "other_cpu_s": 1.2}
HALF = Target(what="CPU", of=ratio("cpu"), at_most=0.5)


@pytest.mark.parametrize("module", [report, results, rounds, session], ids=lambda x: x.__name__)
def test_examples_in_docstrings_pass(module: ModuleType) -> None:
    tried = doctest.testmod(module)
    assert (tried.failed, tried.attempted > 0) == (0, True)


def test_round_with_a_disturbed_judged_broker_does_not_count() -> None:
    assert counts({"kafka": QUIET, "plog": QUIET}, ("kafka", "plog"))
    assert not counts({"kafka": QUIET, "plog": NOISY}, ("kafka", "plog"))
    assert counts({"kafka": QUIET, "plog-default": NOISY}, ("kafka", "plog"))


def test_few_ticks_are_not_noise_in_a_short_run() -> None:
    assert not is_noisy({"wall_s": 0.1, "other_cpu_s": 0.05})


def test_every_step_of_a_run_is_checked_for_noise() -> None:
    steps = {"in.wall_s": 4, "in.other_cpu_s": 0.1, "out_wall_s": 1, "out_other_cpu_s": 0.5}
    assert is_noisy(steps)


def test_ratio_is_computed_per_round_and_the_median_over_rounds() -> None:
    machine_slows_down = [
        {"plog": {"cpu": 1.0}, "kafka": {"cpu": 4.0}},
        {"plog": {"cpu": 2.0}, "kafka": {"cpu": 8.0}},
        {"plog": {"cpu": 9.0}, "kafka": {"cpu": 9.0}},
    ]
    found = spread(values_of(HALF, machine_slows_down, "plog"))
    assert found is not None
    assert (found.middle, found.least, found.greatest, found.count) == (0.25, 0.25, 1.0, 3)
    assert HALF.is_met(found.middle)


def test_round_without_one_of_the_brokers_is_ignored() -> None:
    assert values_of(HALF, [{"plog": {"cpu": 1.0}}], "plog") == []
    assert values_of(HALF, [{"plog": {"cpu": 1.0}, "kafka": {"cpu": 0.0}}], "plog") == []
    assert spread([]) is None


@pytest.mark.parametrize(
    ("target", "value", "met", "bound"),
    [
        (Target(what="", of=figure("x"), at_most=0.35), 0.35, True, "≤ 0.35"),
        (Target(what="", of=figure("x"), at_most=0.35), 0.36, False, "≤ 0.35"),
        (Target(what="", of=figure("x"), at_least=3), 2.9, False, "≥ 3"),
        (Target(what="", of=figure("x"), at_least=3, unit=" ms"), 3.0, True, "≥ 3 ms"),
        (Target(what="", of=figure("x")), 1e9, True, ""),
    ],
)
def test_target_accepts_values_within_its_bound(
    target: Target, value: float, met: bool, bound: str
) -> None:
    assert (target.is_met(value), target.bound) == (met, bound)


def test_difference_compares_a_durable_figure_with_another() -> None:
    round_ = {"plog-default": {"ms": {"p99": 9.0}}, "plog": {"ms": {"p99": 2.0}}}
    assert difference("ms", "p99", against="plog")(round_, "plog-default") == 7.0


def test_figure_may_be_divided_by_another_figure() -> None:
    of = ratio("out50", against="rabbitmq", against_name="out1")
    assert of({"plog": {"out50": 30}, "rabbitmq": {"out1": 3}}, "plog") == 10
