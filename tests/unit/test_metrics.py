"""Counters, gauges and Prometheus's text format."""

from __future__ import annotations

import pytest

from plogd.metrics import Registry


def lines(registry: Registry) -> list[str]:
    return registry.expose().decode().splitlines()


def test_empty_registry_exposes_nothing() -> None:
    assert Registry().expose() == b""


def test_counter_is_exposed_with_help_and_type() -> None:
    registry = Registry()
    counter = registry.counter("plog_things_total", "Things\nwith a \\.")
    counter.inc()
    counter.value += 2
    assert registry.expose() == (
        b"# HELP plog_things_total Things\\nwith a \\\\.\n"
        b"# TYPE plog_things_total counter\n"
        b"plog_things_total 3\n"
    )


def test_labels_are_escaped_and_sorted() -> None:
    registry = Registry()
    family = registry.counters("bytes_total", "Bytes.", ("topic", "kind"))
    family.labels("b", "x").inc(2)
    family.labels("a", 'quote " slash \\ line \n').inc()
    assert lines(registry)[2:] == [
        'bytes_total{topic="a",kind="quote \\" slash \\\\ line \\n"} 1',
        'bytes_total{topic="b",kind="x"} 2',
    ]


def test_same_labels_return_the_same_metric() -> None:
    family = Registry().counters("c_total", "", ("a",))
    assert family.labels("x") is family.labels("x")


def test_removed_metric_restarts_at_zero() -> None:
    registry = Registry()
    family = registry.counters("c_total", "", ("topic",))
    family.labels("a").inc()
    family.remove("a")
    family.remove("never there")
    assert lines(registry)[2:] == []
    assert family.labels("a").value == 0


def test_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="do not match labels"):
        Registry().counters("c_total", "", ("topic",)).labels("a", "b")


def test_gauge_is_set_or_calls_its_function() -> None:
    registry = Registry()
    gauge = registry.gauge("set", "")
    gauge.value = 0.5
    gauge.inc(-2)
    registry.gauge("asked", "", lambda: 7)
    assert lines(registry)[2::3] == ["set -1.5", "asked 7"]


def test_numbers_are_formatted_for_prometheus() -> None:
    registry = Registry()
    numbers = [2.0, 1e300, float("inf"), float("-inf"), float("nan"), True]
    registry.ask("n", "", ("i",), lambda: [((str(i),), x) for i, x in enumerate(numbers)])
    shown = [line.rpartition(" ")[2] for line in lines(registry)[2:]]
    assert shown == ["2", str(int(1e300)), "+Inf", "-Inf", "NaN", "1"]


def test_computed_label_values_may_change_between_scrapes() -> None:
    registry = Registry()
    sizes = {"a": 1}
    registry.ask(
        "size",
        "",
        ("topic",),
        lambda: [((topic,), size) for topic, size in sizes.items()],
        kind="counter",
    )
    assert lines(registry)[1:] == ["# TYPE size counter", 'size{topic="a"} 1']
    sizes.clear()
    assert lines(registry)[2:] == []


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "kafka.server"])
def test_invalid_metric_or_label_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="invalid metric name"):
        Registry().counter(name, "")
    with pytest.raises(ValueError, match="invalid label name"):
        Registry().counters("a", "", (name,))


def test_name_cannot_be_registered_twice() -> None:
    registry = Registry()
    registry.counter("a", "")
    with pytest.raises(ValueError, match="already registered"):
        registry.gauge("a", "")
