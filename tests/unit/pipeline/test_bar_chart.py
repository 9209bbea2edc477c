"""The chart of the page: sizes of bars, labels and text of any kind."""

from __future__ import annotations

from xml.etree import ElementTree

from examples.pipeline.bar_chart import Mark, bar_chart

MINUTE_MS = 60_000


def heights(svg: str, name: str) -> list[float]:
    root = ElementTree.fromstring(svg)
    return [
        float(bar.attrib["height"])
        for bar in root.iter("rect")
        if name in (bar.findtext("title") or "")
    ]


def test_bars_have_the_height_of_their_number() -> None:
    svg = bar_chart("t", {"a": {0: 100, MINUTE_MS: 50}, "b": {0: 50}}, step_ms=MINUTE_MS)
    [whole, half] = heights(svg, "a: ")
    assert (half * 2, heights(svg, "b: ")[0]) == (whole, half)
    # A series without a number in a minute has an empty bar, so that the others keep their place.
    assert heights(svg, "b: ")[1] == 0


def test_text_is_escaped_and_marks_are_labelled() -> None:
    svg = bar_chart("<t>", {"a&b": {0: 1}}, step_ms=MINUTE_MS, marks=[Mark(at_ms=0, label="x<y")])
    texts = [text.text for text in ElementTree.fromstring(svg).iter("text")]
    assert {"<t>", "a&b", "x<y", "00:00"} <= set(texts)


def test_chart_without_numbers_is_empty() -> None:
    assert bar_chart("t", {"a": {}}, step_ms=MINUTE_MS) == ""
