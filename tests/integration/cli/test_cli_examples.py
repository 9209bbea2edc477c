"""The examples of docs/cli.md that need a broker or its files work, in a suitable order."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from plog.cli.docs import parsers_below
from plog.cli.main import load_tool, run_tool
from plog.cli.parser import examples_of, tool_parser
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import consumer, produce

ONLINE = (
    "topics", "get-offsets", "consumer-groups", "configs", "log-dirs", "delete-records",
    "cluster", "features", "broker-api-versions",
)  # fmt: skip
OFFSETS = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 2}], "version": 1}'


def _examples(name: str) -> list[str]:
    parser = tool_parser(name, load_tool(name))
    return [example for each in parsers_below(parser) for example in examples_of(each)]


def _run(example: str, servers: str = "") -> None:
    _, name, *words = shlex.split(example.replace("localhost:9092", servers))
    assert run_tool(name, load_tool(name), words) == 0, example


def test_examples_work(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "offsets.json").write_text(OFFSETS)
    broker = start_broker({"offsets.topic.num.partitions": "1"})
    servers = broker.bootstrap_servers
    topics = _examples("topics")
    _run(topics[0], servers)
    messages = [{"value": b"%d" % i, "partition": 0} for i in range(5)]
    assert set(produce(servers, "orders", messages)) == {None}
    with consumer(servers, group_id="billing", auto_offset_reset="earliest") as client:
        client.subscribe(["orders"])
        while not client.assignment():
            client.poll(0.1)
        offset = confluent_kafka.TopicPartition("orders", 0, 2)
        client.commit(asynchronous=False, offsets=[offset])
    for example in topics[1:]:
        _run(example, servers)
    for name in ONLINE[1:]:
        for example in _examples(name):
            _run(example, servers)
    broker.stop()

    (tmp_path / "plog-data").symlink_to(broker.data_dir)
    monkeypatch.setattr(sys, "stdin", io.StringIO("ls\n"))
    for example in _examples("metadata-shell"):
        _run(example)
    monkeypatch.chdir(broker.data_dir)
    for example in _examples("dump-log"):
        _run(example)
