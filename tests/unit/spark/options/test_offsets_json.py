"""Offsets in JSON are those of the connector, and invalid ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.spark.options.offsets_json import format_offsets, parse_offsets, parse_partitions
from plog.types import TopicPartition

PARTITIONS = st.builds(TopicPartition, st.text(), st.integers(0, 2**31 - 1))


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)))
def test_formatted_offsets_are_parsed_back(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets


def test_offsets_of_the_connector_are_read_and_written() -> None:
    text = '{"topic-1":{"0":23,"1":1},"topic-2":{"0":0}}'
    assert format_offsets(parse_offsets(text)) == text


def test_special_offsets_need_permission() -> None:
    assert parse_offsets('{"t":{"0":-2}}', at_least=-2) == {TopicPartition("t", 0): -2}
    with pytest.raises(ValueError, match="-2 of t-0 must be 0 to"):
        parse_offsets('{"t":{"0":-2}}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("latest", "not a JSON object; use the format"),
        ("[" * 100_000, "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"t":5}', "the value of 't' is not an object"),
        ('{"t":{"0":"5"}}', "'5' is not an integer"),
        ('{"t":{"0":true}}', "True is not an integer"),
        ('{"t":{"0":1.5}}', "1.5 is not an integer"),
        ('{"t":{"-1":5}}', "'-1' is not a partition of 't'"),
        ('{"t":{"٣":5}}', "is not a partition"),
        ('{"t":{"2147483648":5}}', "is not a partition"),
        ('{"t":{"0":9223372036854775808}}', "must be 0 to"),
    ],
)
def test_invalid_offsets_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_offsets(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"t":0}', "is not a list"),
        ('{"t":["0"]}', "'0' is not a partition"),
        ('{"t":[false]}', "False is not a partition"),
        ('{"t":[-1]}', "'-1' is not a partition of 't'"),
        ("t", "not a JSON object"),
    ],
)
def test_invalid_partitions_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_partitions(text)
