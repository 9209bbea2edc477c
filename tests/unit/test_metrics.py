"""Counting, and Prometheus' text format."""

from __future__ import annotations

import pytest

from plogd.metrics import Registry


def lines(registry: Registry) -> list[str]:
    return registry.expose().decode().splitlines()


def test_nothing_registered_exposes_nothing() -> None:
    assert Registry().expose() == b""


def test_a_counter_is_exposed_with_its_help_and_type() -> None:
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


def test_the_same_labels_are_the_same_metric() -> None:
    family = Registry().gauges("g", "", ("a",))
    assert family.labels("x") is family.labels("x")


def test_a_removed_metric_starts_again_from_zero() -> None:
    registry = Registry()
    family = registry.counters("c_total", "", ("topic",))
    family.labels("a").inc()
    family.remove("a")
    family.remove("never there")
    assert lines(registry)[2:] == []
    assert family.labels("a").value == 0


def test_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="labels are"):
        Registry().counters("c_total", "", ("topic",)).labels("a", "b")


def test_a_gauge_is_set_or_asked() -> None:
    registry = Registry()
    gauge = registry.gauge("set", "")
    gauge.value = 0.5
    gauge.inc(-2)
    registry.gauge("asked", "", lambda: 7)
    assert lines(registry)[2::3] == ["set -1.5", "asked 7"]


def test_numbers_are_written_as_prometheus_reads_them() -> None:
    registry = Registry()
    numbers = [2.0, 1e300, float("inf"), float("-inf"), float("nan"), True]
    registry.ask("n", "", ("i",), lambda: [((str(i),), x) for i, x in enumerate(numbers)])
    shown = [line.rpartition(" ")[2] for line in lines(registry)[2:]]
    assert shown == ["2", str(int(1e300)), "+Inf", "-Inf", "NaN", "1"]


def test_what_is_asked_for_may_change_between_scrapes() -> None:
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
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name of a metric"):
        Registry().counter(name, "")
    with pytest.raises(ValueError, match="name of a label"):
        Registry().counters("a", "", (name,))


def test_a_name_is_registered_once() -> None:
    registry = Registry()
    registry.counter("a", "")
    with pytest.raises(ValueError, match="registered already"):
        registry.gauge("a", "")
