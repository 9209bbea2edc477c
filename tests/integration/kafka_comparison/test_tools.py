"""plog's tools and Kafka's own, run on Apache Kafka: the same lines and the same exit codes.

tool_lines.txt contains the commands and describes its format. Where Kafka's tool fails with exit
code 0 or prints a wrong result, plog's tool differs; tests of plog alone cover those commands.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.programs.kafka_tools import KafkaTools
from tests.helpers.side_by_side import Pair
from tests.integration.kafka_comparison.tool_lines import differences, sections

pytestmark = pytest.mark.long

_TABLE = Path(__file__).with_name("tool_lines.txt")


@pytest.mark.parametrize("lines", [pytest.param(x, id=name) for name, x in sections(_TABLE)])
def test_both_tools_print_the_same(
    pair: Pair, kafka_tools: KafkaTools, lines: list[str], tmp_path: Path
) -> None:
    different = differences(pair.kafka.address, kafka_tools, lines, tmp_path)
    assert not different, "\n\n".join(different)
