"""Offsets, times and partitions in the JSON of Spark's Kafka connector.

Options and checkpoints contain ``{"topic": {"0": 23, "1": -1}}``, and the option ``assign``
contains ``{"topic": [0, 1]}``. Checkpoints must be readable by the connector, so the output is
compact and sorted, as is its own. Pure. Source: Spark 4.2 JsonUtils.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from plog.settings import LONG_MAX
from plog.types import TopicPartition

_OFFSETS_EXAMPLE = '{"page-views":{"0":23,"1":-1}}'
_PARTITIONS_EXAMPLE = '{"page-views":[0,1]}'
_INT_MAX = 2**31 - 1


def parse_offsets(text: str, *, at_least: int = 0) -> dict[TopicPartition, int]:
    """Return the number of each partition. Raises ValueError, also for those below `at_least`.

    >>> parse_offsets('{"t": {"1": 5}}')
    {TopicPartition(topic='t', partition=1): 5}
    """
    return read_offsets(_parse_object(text, _OFFSETS_EXAMPLE), at_least=at_least)


def read_offsets(found: Mapping[str, object], *, at_least: int = 0) -> dict[TopicPartition, int]:
    """Return the numbers in a parsed JSON object. Raises ValueError as `parse_offsets` does."""
    numbers: dict[TopicPartition, int] = {}
    for topic, by_partition in found.items():
        if not isinstance(by_partition, dict):
            raise ValueError(
                f"the value of {topic!r} is not an object; use the format {_OFFSETS_EXAMPLE}"
            )
        for key, number in by_partition.items():
            # bool is a subclass of int.
            if not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(f"{number!r} is not an integer; use the format {_OFFSETS_EXAMPLE}")
            partition = _partition(topic, key)
            if not at_least <= number <= LONG_MAX:
                raise ValueError(f"{number} of {partition} must be {at_least} to {LONG_MAX}")
            numbers[partition] = number
    return numbers


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the JSON of `offsets`, as the connector writes it to checkpoints.

    >>> format_offsets({TopicPartition("t", 10): 7, TopicPartition("t", 2): 5})
    '{"t":{"2":5,"10":7}}'
    """
    return json.dumps(nest_offsets(offsets), separators=(",", ":"))


def nest_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return `offsets` as the object that `format_offsets` prints, with sorted keys."""
    topics: dict[str, dict[str, int]] = {}
    # Spark compares the text of offsets to find out if there is anything to read, so equal offsets
    # must have equal texts.
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def parse_partitions(text: str) -> list[TopicPartition]:
    """Return the partitions in the value of ``assign``. Raises ValueError.

    >>> parse_partitions('{"t": [1, 0]}')
    [TopicPartition(topic='t', partition=0), TopicPartition(topic='t', partition=1)]
    """
    # A partition that is listed twice must not be read twice.
    partitions: set[TopicPartition] = set()
    for topic, numbers in _parse_object(text, _PARTITIONS_EXAMPLE).items():
        if not isinstance(numbers, list):
            raise ValueError(
                f"the value of {topic!r} is not a list; use the format {_PARTITIONS_EXAMPLE}"
            )
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(
                    f"{number!r} is not a partition; use the format {_PARTITIONS_EXAMPLE}"
                )
            partitions.add(_partition(topic, str(number)))
    return sorted(partitions)


def _parse_object(text: str, example: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    # Python's parser raises RecursionError for deeply nested text.
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object; use the format {example}")
    return found


def _partition(topic: str, text: str) -> TopicPartition:
    # int() alone would also accept spaces, underscores and the digits of other scripts. The length
    # is checked first, because Python does not convert texts with thousands of digits.
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > _INT_MAX:
        raise ValueError(f"{text!r} is not a partition of {topic!r}; partitions start at 0")
    return TopicPartition(topic, int(text))
