"""The example of docs/spark.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plog.client.faces.blocking import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plogd.testing.broker_process import BrokerProcess

_PAGE = Path(__file__).parents[2] / "docs/spark.md"


def test_example_of_the_page_shows_the_records(
    spark: SparkSession, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"two shirts").result()
    [example] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.S)
    assert "127.0.0.1:9092" in example
    exec(example.replace("127.0.0.1:9092", broker.bootstrap_servers), {})  # noqa: S102  # ours
    assert "two shirts" in capsys.readouterr().out
