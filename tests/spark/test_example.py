"""The examples of docs/spark.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plog.client.faces.blocking import Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plogd.testing.broker_process import BrokerProcess

_PAGE = Path(__file__).parents[2] / "docs/spark.md"


def test_examples_of_the_page_show_and_write_the_records(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"two shirts").result()
    examples = "\n".join(re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.S))
    for name, value in {
        "127.0.0.1:9092": broker.bootstrap_servers,
        "checkpoints": str(tmp_path),
        "/data": str(tmp_path / "data"),
    }.items():
        assert name in examples
        examples = examples.replace(name, value)
    exec(examples, {})  # noqa: S102 - our docs
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    # The batch query prints the records, and the last example their number.
    shown = capsys.readouterr().out
    assert "two shirts" in shown
    assert shown.rstrip().endswith("1")
    with Consumer(
        "orders-in-capitals",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
    ) as consumer:
        assert next(iter(consumer)).value == b"TWO SHIRTS"
    with Consumer(
        "orders-dead-letters",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
    ) as consumer:
        assert next(iter(consumer)).value == b"two shirts"
